{{- define "dressage.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "dressage.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "dressage.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels by which objects are selected; never change them, never put a version in. Trainers carry the same (the launcher sets them). */}}
{{- define "dressage.selector" -}}
app.kubernetes.io/name: dressage
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- define "dressage.labels" -}}
{{ include "dressage.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: dressage
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Name, namespace and labels of an object: dict root, name (suffix), component. */}}
{{- define "dressage.metadata" -}}
name: {{ include "dressage.fullname" .root }}-{{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "dressage.labels" . | nindent 2 }}
{{- end -}}

{{- define "dressage.image" -}}
{{- $image := .root.Values.image -}}
{{- with $image.registry }}{{ . }}/{{ end }}{{ .name }}{{ with .digest }}@{{ . }}{{ else }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end -}}

{{/* Pod and container security of Pod Security "restricted". */}}
{{- define "dressage.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "dressage.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* The argument is the port: kubelets probe without TLS. */}}
{{- define "dressage.probes" -}}
startupProbe:
  grpc: {port: {{ . }}}
  periodSeconds: 2
  failureThreshold: 60
readinessProbe:
  grpc: {port: {{ . }}}
  periodSeconds: 5
  timeoutSeconds: 3
livenessProbe:
  grpc: {port: {{ . }}}
  periodSeconds: 15
  timeoutSeconds: 5
  failureThreshold: 4
{{- end -}}

{{/* The same by HTTP: dict port, scheme. The host is one that the console knows. */}}
{{- define "dressage.httpProbes" -}}
{{- $get := dict "path" "/healthz" "port" .port "scheme" .scheme "httpHeaders" (list (dict "name" "Host" "value" "localhost")) | toJson -}}
startupProbe:
  httpGet: {{ $get }}
  periodSeconds: 2
  failureThreshold: 60
readinessProbe:
  httpGet: {{ $get }}
  periodSeconds: 5
  timeoutSeconds: 3
livenessProbe:
  httpGet: {{ $get }}
  periodSeconds: 15
  timeoutSeconds: 5
  failureThreshold: 4
{{- end -}}

{{- define "dressage.spread" -}}
{{- with .root.Values.rollout.topologyKey }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "dressage.selector" $ | nindent 8 }}
{{- end }}
{{- end -}}

{{/* Where pods of a component may run. */}}
{{- define "dressage.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- define "dressage.authSecret" -}}
{{- .Values.auth.existingSecret | default (printf "%s-auth" (include "dressage.fullname" .)) -}}
{{- end -}}

{{- define "dressage.tlsSecret" -}}
{{- .Values.tls.existingSecret | default (printf "%s-api-tls" (include "dressage.fullname" .)) -}}
{{- end -}}

{{/* Names of the public API's certificate, as a list in YAML: the Service's, a port-forward's, the Ingress's and others. */}}
{{- define "dressage.tlsHosts" -}}
{{- $service := printf "%s-orchestrator" (include "dressage.fullname" .) -}}
{{- $inside := printf "%s.%s.svc" $service .Release.Namespace -}}
{{- $hosts := list $inside (printf "%s.cluster.local" $inside) (printf "%s.%s" $service .Release.Namespace) $service "localhost" -}}
{{- if .Values.ingress.enabled }}{{ $hosts = append $hosts .Values.ingress.host }}{{ end -}}
{{- concat $hosts .Values.tls.hosts | uniq | toYaml -}}
{{- end -}}

{{/* Secret with the certificate of a service inside: dict root, name. Each has a key of its own. */}}
{{- define "dressage.servicesTlsSecret" -}}
{{- .root.Values.tls.services.existingSecret | default (printf "%s-%s-tls" (include "dressage.fullname" .root) .name) -}}
{{- end -}}

{{/* Names of a service's certificate, as a list in YAML: dict root, name. */}}
{{- define "dressage.serviceHosts" -}}
{{- $service := printf "%s-%s" (include "dressage.fullname" .root) .name -}}
{{- $inside := printf "%s.%s.svc" $service .root.Release.Namespace -}}
{{- list $service (printf "%s.%s" $service .root.Release.Namespace) $inside (printf "%s.cluster.local" $inside) "localhost" | toYaml -}}
{{- end -}}

{{/* The Secret with the console's own certificate. */}}
{{- define "dressage.consoleTlsSecret" -}}
{{- .Values.console.tlsSecret | default .Values.tls.existingSecret | default (printf "%s-console-tls" (include "dressage.fullname" .)) -}}
{{- end -}}

{{/* Host names of the console, as a list in YAML: the Service's, a port-forward's, the Ingress's and others. */}}
{{- define "dressage.consoleHosts" -}}
{{- $hosts := include "dressage.serviceHosts" (dict "root" . "name" "console") | fromYamlArray -}}
{{- if .Values.ingress.enabled }}{{ $hosts = append $hosts .Values.ingress.console.host }}{{ end -}}
{{- concat $hosts .Values.console.hosts | uniq | compact | toYaml -}}
{{- end -}}

{{/* Whether the console has an Ingress: a word, or nothing. */}}
{{- define "dressage.consoleIngress" -}}
{{- if and .Values.ingress.enabled .Values.console.enabled .Values.ingress.console.host }}yes{{ end -}}
{{- end -}}

{{/* What a client pod needs to trust the public API: environment variables. */}}
{{- define "dressage.trustEnv" -}}
{{- if .Values.tls.enabled -}}
- {name: DRESSAGE_CA_FILE, value: /etc/dressage/tls/ca.crt}
{{- else -}}
- {name: DRESSAGE_INSECURE, value: "1"}
{{- end -}}
{{- end -}}

{{/* Tokens of the services that call one: dict root, name, callers (list). */}}
{{- define "dressage.peerEnv" -}}
{{- $tokens := dict -}}
{{- range .callers }}
{{- $variable := printf "PEER_%s" (upper .) -}}
{{- $_ := set $tokens . (printf "$(%s)" $variable) }}
{{ include "dressage.secretEnv" (dict "name" $variable "secret" (include "dressage.authSecret" $.root) "key" (printf "%s-%s" . $.name)) }}
{{- end }}
- {name: {{ .prefix }}_PEER_TOKENS, value: {{ $tokens | toJson | quote }}}
{{- end -}}

{{/* Tokens of a service at those that it calls: dict root, name, prefix, calls (list). */}}
{{- define "dressage.tokenEnv" -}}
{{- range .calls }}
{{ include "dressage.secretEnv" (dict "name" (printf "%s_%s_TOKEN" $.prefix (upper . | replace "-" "_")) "secret" (include "dressage.authSecret" $.root) "key" (printf "%s-%s" $.name .)) }}
{{- end }}
{{- end -}}

{{- define "dressage.postgresqlSecret" -}}
{{- .Values.postgresql.existingSecret | default (printf "%s-postgresql" (include "dressage.fullname" .)) -}}
{{- end -}}

{{- define "dressage.storeSecret" -}}
{{- if .Values.minio.enabled -}}
{{- .Values.minio.existingSecret | default (printf "%s-store" (include "dressage.fullname" .)) -}}
{{- else -}}
{{- .Values.externalStore.existingSecret -}}
{{- end -}}
{{- end -}}

{{- define "dressage.secretEnv" -}}
- name: {{ .name }}
  valueFrom: {secretKeyRef: {name: {{ .secret }}, key: {{ .key }}}}
{{- end -}}

{{/* What every service is told: dict root, prefix, component values. */}}
{{- define "dressage.serviceEnv" -}}
- {name: {{ .prefix }}_ADDRESS, value: "0.0.0.0:{{ .port | default 50051 }}"}
- {name: {{ .prefix }}_METRICS_ADDRESS, value: "0.0.0.0:9090"}
- {name: {{ .prefix }}_LOG_FORMAT, value: {{ .root.Values.log.format }}}
- {name: {{ .prefix }}_LOG_LEVEL, value: {{ .root.Values.log.level }}}
- {name: {{ .prefix }}_GRACE_SECONDS, value: {{ .values.graceSeconds | quote }}}
{{- if not .http }}
{{ include "dressage.storeEnv" . }}
{{- end }}
{{- end -}}

{{- define "dressage.extraEnv" -}}
{{- range $name, $value := . }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

{{/* The artifact store: dict root, prefix. */}}
{{- define "dressage.storeEnv" -}}
{{- $values := .root.Values -}}
{{- $external := $values.externalStore -}}
{{- if $values.minio.enabled }}
- {name: {{ .prefix }}_STORE_URL, value: "s3://{{ $values.store.bucket }}"}
- {name: DRESSAGE_S3_ENDPOINT, value: "http://{{ include "dressage.fullname" .root }}-minio.{{ .root.Release.Namespace }}.svc:9000"}
- {name: DRESSAGE_S3_ADDRESSING, value: path}
- {name: DRESSAGE_S3_CREATE_BUCKET, value: "true"}
{{- else }}
- {name: {{ .prefix }}_STORE_URL, value: {{ $external.url | quote }}}
- {name: DRESSAGE_S3_ENDPOINT, value: {{ $external.endpoint | quote }}}
- {name: DRESSAGE_S3_REGION, value: {{ $external.region | quote }}}
- {name: DRESSAGE_S3_ADDRESSING, value: {{ $external.addressing }}}
- {name: DRESSAGE_S3_CREATE_BUCKET, value: {{ $external.createBucket | quote }}}
{{- with $external.publicEndpoint }}
- {name: DRESSAGE_S3_PUBLIC_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- if $external.caConfigMap }}
- {name: DRESSAGE_S3_CA_FILE, value: /etc/dressage/store-ca/ca.crt}
{{- end }}
{{- end }}
{{- with include "dressage.storeSecret" .root }}
{{ include "dressage.secretEnv" (dict "name" "DRESSAGE_S3_ACCESS_KEY" "secret" . "key" "access-key") }}
{{ include "dressage.secretEnv" (dict "name" "DRESSAGE_S3_SECRET_KEY" "secret" . "key" "secret-key") }}
{{- end }}
{{- end -}}

{{- define "dressage.storeMounts" -}}
{{- if and (not .Values.minio.enabled) .Values.externalStore.caConfigMap }}
- {name: store-ca, mountPath: /etc/dressage/store-ca, readOnly: true}
{{- end }}
{{- end -}}

{{- define "dressage.storeVolumes" -}}
{{- if and (not .Values.minio.enabled) .Values.externalStore.caConfigMap }}
- name: store-ca
  configMap: {name: {{ .Values.externalStore.caConfigMap }}}
{{- end }}
{{- end -}}

{{/* The key is generated once: what the cluster has stays. dict root, name (of the Secret), key, length (40). */}}
{{- define "dressage.generated" -}}
{{- $existing := lookup "v1" "Secret" .root.Release.Namespace .name -}}
{{- $old := dig "data" .key "" ($existing | default dict) -}}
{{- $old | default (randAlphaNum (.length | default 40 | int) | b64enc) -}}
{{- end -}}

{{/* Values that contradict each other, told in words. */}}
{{- define "dressage.check" -}}
{{- $v := .Values -}}
{{- if and (not $v.postgresql.enabled) (not $v.externalDatabase.existingSecret) -}}
{{- fail "postgresql.enabled is false: name a Secret with the database's URL in externalDatabase.existingSecret (key `url`)" -}}
{{- end -}}
{{- if and (not $v.minio.enabled) (not $v.externalStore.url) -}}
{{- fail "minio.enabled is false: set externalStore.url, as s3://BUCKET" -}}
{{- end -}}
{{- if $v.networkPolicy.enabled -}}
{{- if and (not $v.postgresql.enabled) (not $v.networkPolicy.externalDatabase.cidrs) -}}
{{- fail "networkPolicy.externalDatabase.cidrs is empty: say where the external database is (as [10.1.2.3/32]), or set networkPolicy.enabled to false" -}}
{{- end -}}
{{- if and (not $v.minio.enabled) (not $v.networkPolicy.externalStore.cidrs) -}}
{{- fail "networkPolicy.externalStore.cidrs is empty: say where the external store is (as [10.1.2.4/32]), or set networkPolicy.enabled to false" -}}
{{- end -}}
{{- end -}}
{{- if and $v.ingress.enabled (not $v.ingress.host) -}}
{{- fail "ingress.enabled is true: set ingress.host to the host name that clients use" -}}
{{- end -}}
{{- if and $v.ingress.enabled (eq $v.ingress.host $v.ingress.console.host) -}}
{{- fail "ingress.console.host is ingress.host: name another host, because both serve the paths of the API" -}}
{{- end -}}
{{- if not (index $v.pools $v.trainer.defaultPool) -}}
{{- fail (printf "trainer.defaultPool is %q, which is none of the pools: %s" $v.trainer.defaultPool (keys $v.pools | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
