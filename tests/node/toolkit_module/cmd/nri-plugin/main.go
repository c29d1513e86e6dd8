// NVIDIA's NRI plugin alone, as nvidia-ctk-installer runs it on a node: told the socket and the namespaces of management devices.
package main

import (
	"context"
	"log"
	"os"

	"github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk-installer/container/runtime/nri"
	"github.com/sirupsen/logrus"
)

func main() {
	ctx := context.Background()
	plugin := nri.NewPlugin(ctx, logrus.StandardLogger(), os.Args[2:])
	if err := plugin.Start(ctx, os.Args[1], "10"); err != nil {
		log.Fatal(err)
	}
	logrus.Info("started")
	<-ctx.Done()
}
