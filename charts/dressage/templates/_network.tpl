{{/* A rule's peer: pods of a component of this release. */}}
{{- define "dressage.peer" -}}
- podSelector:
    matchLabels:
      {{- include "dressage.selector" . | nindent 6 }}
{{- end -}}

{{/* Egress to a component's port: dict root, to, port. */}}
{{- define "dressage.to" -}}
- to:
    {{- include "dressage.peer" (dict "root" .root "component" .to) | nindent 4 }}
  ports: [{port: {{ .port }}, protocol: TCP}]
{{- end -}}

{{/* Ingress from components: dict root, from (list), port. */}}
{{- define "dressage.from" -}}
- from:
    {{- range .from }}
    {{- include "dressage.peer" (dict "root" $.root "component" .) | nindent 4 }}
    {{- end }}
  ports: [{port: {{ .port }}, protocol: TCP}]
{{- end -}}

{{/* Ingress from clients outside of the release: dict root, port. */}}
{{- define "dressage.fromClients" -}}
- from:
    - podSelector: {matchLabels: {dressage.io/client: "true"}}
    {{- with .root.Values.networkPolicy.apiFrom }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if .root.Values.ingress.enabled }}
    - namespaceSelector:
        matchLabels:
          {{- toYaml .root.Values.networkPolicy.ingressNamespace | nindent 10 }}
    {{- end }}
  ports: [{port: {{ .port }}, protocol: TCP}]
{{- end -}}

{{- define "dressage.toDns" -}}
- to:
    {{- toYaml .Values.networkPolicy.dns.peers | nindent 4 }}
  ports:
    {{- range .Values.networkPolicy.dns.ports }}
    - {port: {{ . }}, protocol: UDP}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end -}}

{{- define "dressage.toCidrs" -}}
- to:
    {{- range .cidrs }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  ports:
    {{- range .ports }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end -}}

{{- define "dressage.toStore" -}}
{{- if .Values.minio.enabled -}}
{{- include "dressage.to" (dict "root" . "to" "minio" "port" 9000) -}}
{{- else -}}
{{- with .Values.networkPolicy.externalStore -}}
{{- include "dressage.toCidrs" (dict "cidrs" .cidrs "ports" (list .port)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "dressage.toDatabase" -}}
{{- if .Values.postgresql.enabled -}}
{{- include "dressage.to" (dict "root" . "to" "postgresql" "port" 5432) -}}
{{- else -}}
{{- with .Values.networkPolicy.externalDatabase -}}
{{- include "dressage.toCidrs" (dict "cidrs" .cidrs "ports" (list .port)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The API server has no pod to select. In this order: the CIDRs of the values; the addresses that the cluster states, looked up; private addresses,
because no template without a cluster knows more.
*/}}
{{- define "dressage.toApiServer" -}}
{{- $cidrs := .Values.networkPolicy.apiServer.cidrs -}}
{{- $ports := .Values.networkPolicy.apiServer.ports -}}
{{- if not $cidrs -}}
{{- $endpoints := lookup "v1" "Endpoints" "default" "kubernetes" -}}
{{- range dig "subsets" list ($endpoints | default dict) -}}
{{- range .addresses }}{{ $cidrs = append $cidrs (printf "%s/%s" .ip (ternary "128" "32" (contains ":" .ip))) }}{{ end -}}
{{- if not $ports }}{{ range .ports }}{{ $ports = append $ports .port }}{{ end }}{{ end -}}
{{- end -}}
{{- $service := lookup "v1" "Service" "default" "kubernetes" -}}
{{- with dig "spec" "clusterIP" "" ($service | default dict) -}}
{{- $cidrs = append $cidrs (printf "%s/%s" . (ternary "128" "32" (contains ":" .))) -}}
{{- $ports = append $ports 443 -}}
{{- end -}}
{{- end -}}
{{- if not $cidrs }}{{ $cidrs = list "10.0.0.0/8" "172.16.0.0/12" "192.168.0.0/16" }}{{ end -}}
{{- if not $ports }}{{ $ports = list 443 6443 }}{{ end -}}
{{- include "dressage.toCidrs" (dict "cidrs" $cidrs "ports" ($ports | uniq)) -}}
{{- end -}}

{{- define "dressage.fromPrometheus" -}}
- from:
    - namespaceSelector:
        matchLabels:
          {{- toYaml .root.Values.networkPolicy.prometheusNamespace | nindent 10 }}
      podSelector:
        matchLabels:
          {{- toYaml .root.Values.networkPolicy.prometheusPods | nindent 10 }}
  ports: [{port: {{ .port }}, protocol: TCP}]
{{- end -}}
