{{/* The files that the programs read. Each has a ConfigMap of its own, because a file mounted by `subPath` is never updated. */}}

{{- define "vrampack.extenderConfiguration" -}}
# The extender's configuration; every field is in docs/configuration.md.
apiVersion: vrampack.dev/v1
kind: ExtenderConfiguration
listen:
{{- if eq .Values.shape "kubeadm" }}
  # The host's loopback: only this host's scheduler, and any user with a shell there, can call it.
  verbs: 127.0.0.1:12345
  # On loopback too, so that nothing is open to the hosts' network.
  health: 127.0.0.1:12346
{{- else }}
  # The scheduler is in the same pod: no other client can call a verb.
  verbs: 127.0.0.1:12345
  # Probes come from the node and scrapers from other pods. It serves no verb.
  health: {{ include "vrampack.listen" (list . 12346) }}
{{- end }}
{{- if ne (int .Values.unitMib) 1024 }}
unit_mib: {{ int .Values.unitMib }}
{{- end }}
{{- with .Values.extender.config }}
{{ toYaml . }}
{{- end }}
{{- with .Values.policy }}
policy:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.profiles }}
profiles:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.rules }}
rules:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.usageLeases.enabled }}
usage_leases:
  namespace: {{ .Release.Namespace }}
{{- end }}
{{ end }}

{{- define "vrampack.schedulerConfiguration" -}}
{{- $bindSeconds := dig "deadlines" "bind_seconds" 3 .Values.extender.config -}}
# Our kube-scheduler: a second scheduler, named {{ .Values.scheduler.name }}, whose GPU decisions the extender beside it makes.
# Pods choose it by `schedulerName: {{ .Values.scheduler.name }}`, which the admission policies set or require.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
# One replica schedules at a time, so only one extender is called at a time. The lock has a name of its own: with the
# default name, the cluster's own scheduler and this one would lock each other out.
leaderElection:
  leaderElect: true
  resourceLock: leases
  resourceName: vrampack-scheduler
  resourceNamespace: {{ .Release.Namespace }}
# By default a scheduler limits itself to 50 calls per second. Every pod costs it an event and every refused one a
# status patch, so this limit, not the extender, would slow down a busy cluster. The API server's own priority and fairness
# protects it.
clientConnection:
  qps: {{ .Values.scheduler.qps }}
  burst: {{ .Values.scheduler.burst }}
# Profiling is not needed in production, and an endpoint that is off cannot be abused.
enableProfiling: false
enableContentionProfiling: false
profiles:
  - schedulerName: {{ .Values.scheduler.name }}
    # Look at every node. The default stops at 5 to 50 % of a larger cluster, and the tightest card is often on a node
    # that it did not look at.
    percentageOfNodesToScore: {{ .Values.scheduler.percentageOfNodesToScore }}
    plugins:
      # Disabled for scores only; NodeResourcesFit still filters. These three rank nodes by how empty they are or which
      # images they have cached, which matters less than packing. What users state (affinity, taints, spread) keeps its
      # score and may outweigh packing.
      score:
        disabled:
          - name: NodeResourcesFit
          - name: NodeResourcesBalancedAllocation
          - name: ImageLocality
extenders:
  # The extender is in the same pod, so it listens on loopback without TLS: no other client can reach it.
  - urlPrefix: http://127.0.0.1:12345/gpushare-scheduler
    filterVerb: filter
    prioritizeVerb: prioritize
    # Our scores of 0 to 10 become 0 to 1000, because the scheduler multiplies them by 10; each plugin gives up to 100 times
    # a small weight. So packing decides unless several stated preferences outweigh it.
    weight: {{ .Values.scheduler.weight }}
    # The extender writes node and cards in one Binding.
    bindVerb: bind
    # The scheduler chooses victims by node totals. The extender adds those that must leave to free a card, and drops the
    # nodes on which evictions would not help.
    preemptVerb: preempt
    # Send node names instead of node objects: the extender watches nodes itself, and bodies are 50 times smaller.
    nodeCacheCapable: true
    # Longer than the extender's own deadline of {{ $bindSeconds }} s, so that the extender always gives up first and says
    # why.
    httpTimeout: {{ add (ceil $bindSeconds | int) 2 }}s
    managedResources:
      # The scheduler sends no pod that does not request it. It counts the resource as well: it makes no call for a node
      # whose total is exhausted, and preemption keeps working.
      - name: aliyun.com/gpu-mem
        ignoredByScheduler: false
    # Without the extender no such pod is placed. If it were ignorable, the scheduler would bind a pod itself after a slow
    # call: to a node, but to no card.
    ignorable: false
{{ end }}

{{- define "vrampack.agentConfiguration" -}}
# The agent's configuration; every field is in docs/configuration.md.
apiVersion: vrampack.dev/v1
kind: AgentConfiguration
{{- if ne (int .Values.unitMib) 1024 }}
unit_mib: {{ int .Values.unitMib }}
{{- end }}
{{- if ne .Values.listenAddress "0.0.0.0" }}
listen:
  health: {{ include "vrampack.listen" (list . 12347) }}
{{- end }}
{{- if .Values.agent.metrics.tlsSecret }}
metrics:
  # The only listener that serves `/metrics`, whose series name the pods of all tenants.
  address: {{ include "vrampack.listen" (list . 12350) }}
  authorization: token
  tls:
    cert_file: /etc/vrampack-metrics/tls.crt
    key_file: /etc/vrampack-metrics/tls.key
{{- end }}
{{- if .Values.usageLeases.enabled }}
usage_lease:
  namespace: {{ .Release.Namespace }}
  interval_seconds: {{ int .Values.usageLeases.intervalSeconds }}
{{- end }}
{{- with .Values.agent.config }}
{{ toYaml . }}
{{- end }}
{{ end }}

{{- define "vrampack.admissionConfiguration" -}}
# The webhook's configuration; every field is in docs/configuration.md.
apiVersion: vrampack.dev/v1
kind: AdmissionWebhookConfiguration
listen:
  # The API server, probes and scrapers all connect from outside the pod.
  admission: {{ include "vrampack.listen" (list . 12348) }}
  health: {{ include "vrampack.listen" (list . 12349) }}
tls:
  cert_file: /etc/vrampack/admission/certificate/tls.crt
  key_file: /etc/vrampack/admission/certificate/tls.key
{{- if eq .Values.shape "second-scheduler" }}
scheduler_name: {{ .Values.scheduler.name }}
{{- end }}
{{- with .Values.admission.webhook.config }}
{{ toYaml . }}
{{- end }}
{{ end }}

{{/* An address to listen on; the argument is a list of the root context and a port. Quoted if YAML would read it as a list. */}}
{{- define "vrampack.listen" -}}
{{- $address := printf "%s:%d" (index . 0).Values.listenAddress (index . 1) -}}
{{- if hasPrefix "[" $address }}{{ $address | quote }}{{ else }}{{ $address }}{{ end }}
{{- end }}
