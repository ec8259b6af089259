{{- define "dressage.databaseEnv" -}}
{{- if .Values.postgresql.enabled }}
{{ include "dressage.secretEnv" (dict "name" "POSTGRES_PASSWORD" "secret" (include "dressage.postgresqlSecret" .) "key" "password") }}
- name: DRESSAGE_ORCHESTRATOR_DATABASE_URL
  value: postgresql://dressage:$(POSTGRES_PASSWORD)@{{ include "dressage.fullname" . }}-postgresql:5432/dressage
{{- else }}
{{ include "dressage.secretEnv" (dict "name" "DRESSAGE_ORCHESTRATOR_DATABASE_URL" "secret" .Values.externalDatabase.existingSecret "key" "url") }}
{{- end }}
{{- end -}}

{{/* Not empty if a pool asks for GPUs and its nodes are not added on demand. */}}
{{- define "dressage.hasDevices" -}}
{{- range $pool := .Values.pools -}}
{{- if and $pool (not $pool.nodesOnDemand) -}}
{{- range $kind, $amounts := $pool.resources }}{{ range $name, $amount := $amounts }}{{ if regexMatch "/gpu([.]shared)?$" $name }}yes{{ end }}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The pools as the launcher reads them: each with the images and ids that the values leave open. */}}
{{- define "dressage.pools" -}}
{{- $pools := dict -}}
{{- range $name, $pool := .Values.pools -}}
{{- if $pool -}}
{{- $defaults := dict "image" (include "dressage.image" (dict "root" $ "name" $.Values.trainer.image "digest" $.Values.trainer.digest)) "imagePullPolicy" $.Values.image.pullPolicy "serviceAccount" (printf "%s-trainer" (include "dressage.fullname" $)) -}}
{{- if and (not $.Values.minio.enabled) $.Values.externalStore.caConfigMap }}{{ $_ := set $defaults "caConfigMap" $.Values.externalStore.caConfigMap }}{{ end -}}
{{- $secrets := list -}}
{{- range $.Values.image.pullSecrets }}{{ $secrets = append $secrets .name }}{{ end -}}
{{- if $secrets }}{{ $_ := set $defaults "imagePullSecrets" $secrets }}{{ end -}}
{{- $_ := set $pools $name (mergeOverwrite $defaults (deepCopy $pool)) -}}
{{- end -}}
{{- end -}}
{{- dict "pools" $pools | toPrettyJson -}}
{{- end -}}
