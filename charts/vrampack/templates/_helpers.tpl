{{/* The images, as pods name them. */}}
{{- define "vrampack.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "vrampack.schedulerImage" -}}
{{ .Values.scheduler.image.repository }}:{{ .Values.scheduler.image.tag }}{{ with .Values.scheduler.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The labels of every object. Those of its release are on no pod: a new version of the chart would replace it. */}}
{{- define "vrampack.labels" -}}
app.kubernetes.io/part-of: vrampack
{{- if .Values.releaseLabels }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}
{{- end }}

{{/* Lines of a pod's spec that only some values need. */}}
{{- define "vrampack.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Not empty if a policy gives pods our scheduler. */}}
{{- define "vrampack.setsScheduler" -}}
{{- if and (eq .Values.shape "second-scheduler") (eq .Values.admission.form "policies") -}}yes{{- end }}
{{- end }}

{{/* The namespaces of programs that manage the cards, as a JSON list. The release's namespace is always one of them. */}}
{{- define "vrampack.trustedNamespaces" -}}
{{- append .Values.admission.trustedNamespaces .Release.Namespace | uniq | toJson | replace "," ", " }}
{{- end }}

{{/* Not empty if containers that request no GPU get NVIDIA_VISIBLE_DEVICES=void. */}}
{{- define "vrampack.void" -}}
{{- $admission := .Values.admission }}
{{- if and (eq $admission.form "policies") (or (eq $admission.void "always") (and $admission.exact (eq $admission.void "auto"))) -}}yes{{- end }}
{{- end }}

{{/* Not empty if a Job of ours makes the webhook's certificate. */}}
{{- define "vrampack.certificateJob" -}}
{{- if and (eq .Values.admission.form "webhook") (eq .Values.admission.webhook.certificate.source "job") -}}yes{{- end }}
{{- end }}

{{/* Not empty if cert-manager makes it. */}}
{{- define "vrampack.certManager" -}}
{{- if and (eq .Values.admission.form "webhook") (eq .Values.admission.webhook.certificate.source "cert-manager") -}}yes{{- end }}
{{- end }}

{{/* The Secret that the webhook mounts. */}}
{{- define "vrampack.certificateSecret" -}}
{{- if eq .Values.admission.webhook.certificate.source "secret" -}}
{{ .Values.admission.webhook.certificate.secretName }}
{{- else -}}
vrampack-admission
{{- end }}
{{- end }}

{{/*
The name of a ConfigMap with this data; the argument is a list of the root context, the base name and the data. The name ends
in a hash of the content, the same one that kustomize computes, so a changed file starts new pods beside the old ones.
*/}}
{{- define "vrampack.configMapName" -}}
{{- $root := index . 0 }}{{- $name := index . 1 }}{{- $data := index . 2 }}
{{- if $root.Values.configMaps.create -}}
{{- $hash := dict "data" $data "kind" "ConfigMap" "name" "" | toJson | sha256sum | trunc 10 -}}
{{ $name }}-{{ $hash | replace "0" "g" | replace "1" "h" | replace "3" "k" | replace "a" "m" | replace "e" "t" }}
{{- else -}}
{{ $name }}
{{- end }}
{{- end }}

{{- define "vrampack.extenderConfigMapName" -}}
{{- include "vrampack.configMapName" (list . "vrampack-extender-config" (dict "extender.yaml" (include "vrampack.extenderConfiguration" .))) }}
{{- end }}

{{- define "vrampack.schedulerConfigMapName" -}}
{{- include "vrampack.configMapName" (list . "vrampack-scheduler-config" (dict "scheduler.yaml" (include "vrampack.schedulerConfiguration" .))) }}
{{- end }}

{{- define "vrampack.agentConfigMapName" -}}
{{- include "vrampack.configMapName" (list . "vrampack-agent-config" (dict "agent.yaml" (include "vrampack.agentConfiguration" .))) }}
{{- end }}

{{- define "vrampack.admissionConfigMapName" -}}
{{- include "vrampack.configMapName" (list . "vrampack-admission-config" (dict "admission.yaml" (include "vrampack.admissionConfiguration" .))) }}
{{- end }}
