// pause holds a pod's namespaces open, which is all that a sandbox container does: it reaps what is left to it and
// ends when it is told.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	told := make(chan os.Signal, 8)
	signal.Notify(told, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for sent := range told {
		if sent != syscall.SIGCHLD {
			os.Exit(0)
		}
		for {
			if gone, _ := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); gone <= 0 {
				break
			}
		}
	}
}
