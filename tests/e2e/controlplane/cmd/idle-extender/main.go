// idle-extender does the least that an extender of this form can do: every node passes, every score is 0, and
// bind is one Binding without annotations. It remembers nothing. With --refuse no node passes.
//
// The benchmarks put it where vrampack's extender stands: what is lost beside it is ours to answer for, the rest is
// what any extender costs. Nothing else uses it. It is started with the flags and in the surroundings of the extender.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
)

const (
	account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	prefix  = "/gpushare-scheduler"
)

// What it reads and writes of the scheduler's API (k8s.io/kube-scheduler/extender/v1), no more: the pod stays unread.
type (
	arguments struct {
		NodeNames []string
	}
	filterResult struct {
		NodeNames   []string
		FailedNodes map[string]string `json:",omitempty"`
	}
	hostPriority struct {
		Host  string
		Score int64
	}
	bindingArguments struct {
		PodName, PodNamespace, PodUID, Node string
	}
	bindingResult struct {
		Error string
	}
)

func main() {
	log.SetFlags(0)
	listen := flag.String("listen", "127.0.0.1:12345", "where the verbs are answered")
	health := flag.String("health-listen", "127.0.0.1:12346", "where /readyz and /metrics are answered")
	refuse := flag.Bool("refuse", false, "no node passes filter")
	for _, unread := range []string{"config", "scheduler-config", "ready-after"} {
		flag.String(unread, "", "taken and not read")
	}
	flag.Parse()

	var filtered atomic.Int64
	api := inCluster()
	verbs := http.NewServeMux()
	verbs.HandleFunc("POST "+prefix+"/filter", func(w http.ResponseWriter, r *http.Request) {
		filtered.Add(1)
		reply(w, r, func(asked *arguments) any { return filter(asked, *refuse) })
	})
	verbs.HandleFunc("POST "+prefix+"/prioritize", func(w http.ResponseWriter, r *http.Request) {
		reply(w, r, prioritize)
	})
	verbs.HandleFunc("POST "+prefix+"/bind", func(w http.ResponseWriter, r *http.Request) {
		reply(w, r, api.bind)
	})
	aside := http.NewServeMux()
	aside.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	aside.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "idle_filtered_total %d\n", filtered.Load())
	})
	go func() { log.Fatal(http.ListenAndServe(*health, aside)) }()
	log.Fatal(http.ListenAndServe(*listen, verbs))
}

func filter(asked *arguments, refuse bool) any {
	if !refuse {
		return &filterResult{NodeNames: asked.NodeNames}
	}
	failed := make(map[string]string, len(asked.NodeNames))
	for _, name := range asked.NodeNames {
		failed[name] = "no card with enough free memory"
	}
	return &filterResult{NodeNames: []string{}, FailedNodes: failed}
}

func prioritize(asked *arguments) any {
	scores := make([]hostPriority, len(asked.NodeNames))
	for i, name := range asked.NodeNames {
		scores[i].Host = name
	}
	return scores
}

// reply answers a body of type T by what say makes of it.
func reply[T any](w http.ResponseWriter, r *http.Request, say func(*T) any) {
	asked := new(T)
	if err := json.NewDecoder(r.Body).Decode(asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(say(asked)); err != nil {
		log.Print(err)
	}
}

// server is the API server, as a pod knows it.
type server struct {
	client http.Client
	url    string
	token  string
}

func inCluster() *server {
	authority, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		log.Fatal(err)
	}
	token, err := os.ReadFile(account + "token")
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	at := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	return &server{http.Client{Transport: transport}, "https://" + at, strings.TrimSpace(string(token))}
}

// bind posts one Binding and says what the API server said.
func (s *server) bind(asked *bindingArguments) any {
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Binding","metadata":{"name":%q,"uid":%q},`+
		`"target":{"apiVersion":"v1","kind":"Node","name":%q}}`, asked.PodName, asked.PodUID, asked.Node)
	path := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s/binding", s.url, asked.PodNamespace, asked.PodName)
	request, err := http.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return &bindingResult{Error: err.Error()}
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Content-Type", "application/json")
	answer, err := s.client.Do(request)
	if err != nil {
		return &bindingResult{Error: err.Error()}
	}
	defer answer.Body.Close()
	said, _ := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusCreated {
		return &bindingResult{Error: string(said)}
	}
	return &bindingResult{}
}
