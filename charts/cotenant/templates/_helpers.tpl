{{/* The image of every container. */}}
{{- define "cotenant.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* What selects the pods of a component: (list . "node"). */}}
{{- define "cotenant.selector" -}}
{{- $ := index . 0 -}}
app.kubernetes.io/name: cotenant
app.kubernetes.io/instance: {{ $.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* The labels of an object of a component: (list . "node"). */}}
{{- define "cotenant.labels" -}}
{{- $ := index . 0 -}}
{{ include "cotenant.selector" . }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ $.Chart.Name }}-{{ $.Chart.Version }}
{{- end }}

{{/* Where the programs find the API server, when it is not where Kubernetes says. */}}
{{- define "cotenant.apiServer" -}}
{{- with .Values.apiServer.host }}
- {name: KUBERNETES_SERVICE_HOST, value: {{ . | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ $.Values.apiServer.port | quote }}}
{{- end }}
{{- end }}

{{/* What every program may: nothing but run. */}}
{{- define "cotenant.securityContext" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
privileged: false
readOnlyRootFilesystem: true
runAsGroup: 65532
runAsNonRoot: true
runAsUser: 65532
{{- end }}

{{/* Replicas of a component on different nodes, where there are: (list . "analyzer"). */}}
{{- define "cotenant.apart" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
  - weight: 100
    podAffinityTerm:
      topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          {{- include "cotenant.selector" . | nindent 10 }}
{{- end }}

{{/* The name that the analyzer's certificate says. */}}
{{- define "cotenant.analyzerName" -}}
cotenant-analyzer.{{ .Release.Namespace }}.svc
{{- end }}

{{/* "true" where the kubelet is to be asked with the finer right. */}}
{{- define "cotenant.kubeletFineGrained" -}}
{{- $wanted := .Values.node.kubelet.fineGrainedAuthorization -}}
{{- if or (eq $wanted "always") (and (eq $wanted "auto") (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version)) -}}
true
{{- end -}}
{{- end }}
