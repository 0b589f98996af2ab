{{- define "isthmus.name" -}}
{{- printf "%s-%s" .root.Release.Name .part | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "isthmus.selector" -}}
app.kubernetes.io/name: isthmus
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "isthmus.labels" -}}
{{ include "isthmus.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end -}}

{{- define "isthmus.image" -}}
{{ .root.Values.image.registry }}{{ .image }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{/* What all pods have: an ordinary user, and no privilege but, in a network of their own, port 443. */}}
{{- define "isthmus.pod" -}}
{{- with .root.Values.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .uid | default 65534 }}
  runAsGroup: {{ .uid | default 65534 }}
  fsGroup: {{ .uid | default 65534 }}
  seccompProfile: {type: RuntimeDefault}
  {{- if .port443 }}
  sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "443"}]
  {{- end }}
{{- end -}}

{{- define "isthmus.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Certificates, renewed in place, with what a daemon remembers. */}}
{{- define "isthmus.state" -}}
- name: state
  {{- if .storage }}
  persistentVolumeClaim: {claimName: {{ .name }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end -}}

{{- define "isthmus.claim" -}}
{{- if .storage }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .name }}
  labels: {{ include "isthmus.labels" . | nindent 4 }}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: {{ .storage }}}}
{{- end }}
{{- end -}}

{{/* A token, where no other user of the node sees it. */}}
{{- define "isthmus.token" -}}
- name: ISTHMUS_TOKEN
  valueFrom: {secretKeyRef: {name: {{ . }}, key: token}}
{{- end -}}
