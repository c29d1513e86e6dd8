{{/* The files that the programs read. Each is a ConfigMap of its own: a file that is mounted by `subPath` would never change. */}}

{{- define "vrampack.extenderConfiguration" -}}
# The extender's configuration; every field is in docs/configuration.md.
apiVersion: vrampack.dev/v1
kind: ExtenderConfiguration
listen:
{{- if eq .Values.shape "kubeadm" }}
  # The host's loopback: the scheduler of this host, and any user with a shell on it.
  verbs: 127.0.0.1:12345
  # Also there, so that nothing is open to the network of the hosts.
  health: 127.0.0.1:12346
{{- else }}
  # The scheduler is in the same pod: no other client can call a verb.
  verbs: 127.0.0.1:12345
  # Probes come from the node and scrapers from other pods. No verb can be reached through it.
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
# Pods choose it by `schedulerName: {{ .Values.scheduler.name }}`; the admission policies see to that.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
# One replica schedules at a time, so one extender is called at a time. The name is ours: under the default
# one the cluster's own scheduler and this one would lock each other out.
leaderElection:
  leaderElect: true
  resourceLock: leases
  resourceName: vrampack-scheduler
  resourceNamespace: {{ .Release.Namespace }}
# By default a scheduler holds itself to 50 calls a second. Every pod costs it an event and every refused
# one a status patch, so that cap, not the extender, would set the rate of a busy cluster; the API server's
# own priority and fairness is the brake.
clientConnection:
  qps: {{ .Values.scheduler.qps }}
  burst: {{ .Values.scheduler.burst }}
# Profiling is not needed in production, and an endpoint that is off cannot be abused.
enableProfiling: false
enableContentionProfiling: false
profiles:
  - schedulerName: {{ .Values.scheduler.name }}
    # Look at every node. The default stops at 5 to 50 % of a larger cluster, and the tightest card is
    # often on a node it never looked at.
    percentageOfNodesToScore: {{ .Values.scheduler.percentageOfNodesToScore }}
    plugins:
      # For scores only; NodeResourcesFit still filters. These three rank nodes by how empty they are or
      # what they have cached, an accident beside the packing decision. What a user states (affinity,
      # taints, spread) keeps its score and may outweigh packing.
      score:
        disabled:
          - name: NodeResourcesFit
          - name: NodeResourcesBalancedAllocation
          - name: ImageLocality
extenders:
  # In the same pod, so loopback and no TLS: no other client can reach the address.
  - urlPrefix: http://127.0.0.1:12345/gpushare-scheduler
    filterVerb: filter
    prioritizeVerb: prioritize
    # Our scores 0-10 become 0-1000 (times 10 in the scheduler), against 100 times a small weight of each
    # plugin: packing decides unless several stated preferences say otherwise.
    weight: {{ .Values.scheduler.weight }}
    # The extender writes node and cards in one Binding.
    bindVerb: bind
    # Victims are chosen by node totals; the extender adds those without which no single card would be free, and
    # drops the nodes where evicting would not help.
    preemptVerb: preempt
    # Node names, not node objects: the extender watches nodes itself, and bodies are 50 times smaller.
    nodeCacheCapable: true
    # Longer than the extender's own deadline of {{ $bindSeconds }} s, so that it is always the extender that gives up
    # first and says why.
    httpTimeout: {{ add (ceil $bindSeconds | int) 2 }}s
    managedResources:
      # Pods that do not ask for it are never sent. The scheduler counts it as well: a node whose total is
      # exhausted costs no call, and preemption keeps working.
      - name: aliyun.com/gpu-mem
        ignoredByScheduler: false
    # Without the extender nothing is placed. If it were ignorable, a slow bind would be done by the
    # scheduler itself: a pod on a node, and on no card.
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
  # The only listener with `/metrics`: its series name the pods of all tenants.
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
  # The API server comes from outside the pod, probes and scrapers too.
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

{{/* An address to listen on, of the root and a port. In quotes where YAML would read a list. */}}
{{- define "vrampack.listen" -}}
{{- $address := printf "%s:%d" (index . 0).Values.listenAddress (index . 1) -}}
{{- if hasPrefix "[" $address }}{{ $address | quote }}{{ else }}{{ $address }}{{ end }}
{{- end }}
