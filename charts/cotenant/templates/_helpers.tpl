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

{{/* What a pod's specification begins with, whichever component: (list . $values "name"). */}}
{{- define "cotenant.pod" -}}
{{- $ := index . 0 -}}
{{- $values := index . 1 -}}
serviceAccountName: cotenant-{{ index . 2 }}
priorityClassName: {{ $values.priorityClassName }}
terminationGracePeriodSeconds: 15
{{- if $values.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- with $.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
nodeSelector:
  {{- toYaml $values.nodeSelector | nindent 2 }}
tolerations:
  {{- toYaml $values.tolerations | nindent 2 }}
securityContext:
  seccompProfile: {type: RuntimeDefault}
  fsGroup: 65532
{{- end }}

{{/* The probes of a program with /healthz: (list "port" "/readyz"). */}}
{{- define "cotenant.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ index . 0 }}}
  periodSeconds: 1
  failureThreshold: 60
readinessProbe:
  httpGet: {path: {{ index . 1 }}, port: {{ index . 0 }}}
  periodSeconds: 5
livenessProbe:
  httpGet: {path: /healthz, port: {{ index . 0 }}}
  periodSeconds: 10
  failureThreshold: 6
  timeoutSeconds: 5
{{- end }}

{{/* A ServiceAccount with its role in the cluster and its role in our namespace: (list . "name" $clusterRules $rules). */}}
{{- define "cotenant.account" -}}
{{- $ := index . 0 -}}
{{- $name := printf "cotenant-%s" (index . 1) -}}
{{- $labels := include "cotenant.labels" (list $ (index . 1)) | fromYaml -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- toYaml $labels | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels:
    {{- toYaml $labels | nindent 4 }}
rules:
{{ index . 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels:
    {{- toYaml $labels | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }}}
subjects:
- {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $.Release.Namespace }}}
{{- with index . 3 }}
---
{{ include "cotenant.role" (list $ $name $.Release.Namespace $labels .) }}
{{- end }}
{{- end }}

{{/* A role in a namespace, and who has it: (list . "name" "namespace" $labels $rules). The account has the role's name. */}}
{{- define "cotenant.role" -}}
{{- $ := index . 0 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ index . 1 }}
  namespace: {{ index . 2 }}
  labels:
    {{- toYaml (index . 3) | nindent 4 }}
rules:
{{ index . 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ index . 1 }}
  namespace: {{ index . 2 }}
  labels:
    {{- toYaml (index . 3) | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ index . 1 }}}
subjects:
- {kind: ServiceAccount, name: {{ index . 1 }}, namespace: {{ $.Release.Namespace }}}
{{- end }}

{{/* The authority of the analyzer's certificate, and a token that is good for the analyzer and for nobody else. */}}
{{- define "cotenant.analyzerVolumes" -}}
- name: analyzer-ca
  {{- if .Values.analyzer.tls.existingSecret }}
  secret:
    secretName: {{ .Values.analyzer.tls.existingSecret }}
    items: [{key: ca.crt, path: ca.crt}]
  {{- else }}
  configMap: {name: cotenant-analyzer-ca}
  {{- end }}
- name: token
  projected:
    sources:
    - serviceAccountToken: {audience: cotenant-analyzer, path: token, expirationSeconds: 3600}
{{- end }}

{{/* On the node's own network two pods cannot have one port: the old one goes first. */}}
{{- define "cotenant.strategy" -}}
{{- if .hostNetwork }}
strategy:
  rollingUpdate: {maxSurge: 0, maxUnavailable: 1}
{{- end }}
{{- end }}
