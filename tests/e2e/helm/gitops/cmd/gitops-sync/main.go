// gitops-sync KUBECONFIG NAMESPACE: puts the objects of stdin into a cluster as Argo CD does, by its engine, and
// compares, twice. Each round prints a line of JSON: what was changed, what differs afterwards, what is no longer among
// the objects and stays.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/argoproj/gitops-engine/pkg/cache"
	"github.com/argoproj/gitops-engine/pkg/diff"
	"github.com/argoproj/gitops-engine/pkg/engine"
	"github.com/argoproj/gitops-engine/pkg/sync"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	rounds  = 2
	timeout = 2 * time.Minute
	// The engine prunes in the foreground: an object goes after the garbage collector has ended what it owns.
	settleTimeout = 30 * time.Second
	pollInterval  = 100 * time.Millisecond
	// Argo CD's own, by which it knows its objects again.
	mark        = "argocd.argoproj.io/tracking-id"
	application = "vrampack"
)

type round struct {
	Differed []string `json:"differed"`
	Messages []string `json:"messages"`
	Differs  []string `json:"differs"`
	Left     []string `json:"left"`
}

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, namespace string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 500, 1000
	live := cache.NewClusterCache(config,
		cache.SetLogr(logr.Discard()),
		cache.SetPopulateResourceInfoHandler(func(un *unstructured.Unstructured, _ bool) (interface{}, bool) {
			return isMarked(un), isMarked(un)
		}),
	)
	gitops := engine.NewEngine(config, live, engine.WithLogr(logr.Discard()))
	stop, err := gitops.Run()
	if err != nil {
		return err
	}
	defer stop()
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for i := 0; i < rounds; i++ {
		// Read the cluster's objects again: a watch may be behind what the round before wrote.
		live.Invalidate()
		if err := live.EnsureSynced(); err != nil {
			return err
		}
		made, err := syncOnce(ctx, gitops, live, text, namespace)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(made); err != nil {
			return err
		}
	}
	return nil
}

func syncOnce(ctx context.Context, gitops engine.GitOpsEngine, live cache.ClusterCache, text []byte, namespace string) (round, error) {
	made := round{}
	var err error
	if made.Differed, _, err = compare(live, text, namespace); err != nil {
		return made, err
	}
	target, err := read(text)
	if err != nil {
		return made, err
	}
	done, err := gitops.Sync(ctx, target, isOurs, "1", namespace, sync.WithPrune(true), sync.WithLogr(logr.Discard()))
	for _, each := range done {
		made.Messages = append(made.Messages, fmt.Sprintf("%s/%s: %s %s", each.ResourceKey.Kind, each.ResourceKey.Name, each.Status, each.Message))
	}
	if err != nil {
		return made, err
	}
	// A difference is one that lasts: an event of a watch that has just ended may be behind what the sync wrote.
	err = wait.PollImmediateWithContext(ctx, pollInterval, settleTimeout, func(context.Context) (bool, error) {
		live.Invalidate()
		if err := live.EnsureSynced(); err != nil {
			return false, err
		}
		var err error
		made.Differs, made.Left, err = compare(live, text, namespace)
		return len(made.Differs) == 0, err
	})
	if err == wait.ErrWaitTimeout {
		err = nil
	}
	return made, err
}

// compare names what differs, with the patch that would mend it, and what is marked and not among the objects.
func compare(live cache.ClusterCache, text []byte, namespace string) (differs, left []string, err error) {
	target, err := read(text)
	if err != nil {
		return nil, nil, err
	}
	managed, err := live.GetManagedLiveObjs(target, isOurs)
	if err != nil {
		return nil, nil, err
	}
	both := sync.Reconcile(target, managed, namespace, live)
	found, err := diff.DiffArray(both.Target, both.Live, diff.WithLogr(logr.Discard()))
	if err != nil {
		return nil, nil, err
	}
	for i, each := range found.Diffs {
		switch {
		case both.Target[i] == nil && both.Live[i].GetDeletionTimestamp() != nil:
			differs = append(differs, name(both.Live[i])+": is being deleted")
		case both.Target[i] == nil:
			left = append(left, name(both.Live[i]))
		case both.Live[i] == nil:
			differs = append(differs, name(both.Target[i])+": is not there")
		case each.Modified:
			differs = append(differs, fmt.Sprintf("%s: %s\nis %s", name(both.Target[i]), each.PredictedLive, each.NormalizedLive))
		}
	}
	return differs, left, nil
}

func read(text []byte) ([]*unstructured.Unstructured, error) {
	target, err := kube.SplitYAML(text)
	if err != nil {
		return nil, err
	}
	for _, each := range target {
		annotations := each.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[mark] = fmt.Sprintf("%s:%s/%s:%s/%s", application, each.GroupVersionKind().Group, each.GetKind(), each.GetNamespace(), each.GetName())
		each.SetAnnotations(annotations)
	}
	return target, nil
}

func isMarked(un *unstructured.Unstructured) bool {
	_, there := un.GetAnnotations()[mark]
	return there
}

func isOurs(resource *cache.Resource) bool {
	marked, is := resource.Info.(bool)
	return is && marked
}

func name(un *unstructured.Unstructured) string { return un.GetKind() + "/" + un.GetName() }
