{{/* A stateless service, whole: dict root, component, name, module, prefix, values, env (list, YAML), envFrom (Secret), callers and calls (lists of services).
     One that serves HTTP: http (http or https), port, tlsSecret, mounts and volumes (lists, YAML); it has no store. */}}
{{- define "dressage.service" -}}
{{- $root := .root -}}
{{- $v := .values -}}
{{- $port := .port | default 50051 -}}
{{- $portName := ternary "http" "grpc" (hasKey . "http") -}}
{{- $scaled := dig "autoscaling" "enabled" false $v -}}
{{- $full := include "dressage.fullname" $root -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "dressage.metadata" . | nindent 2 }}
spec:
  {{- if not $scaled }}
  replicas: {{ $v.replicas }}
  {{- end }}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  selector:
    matchLabels:
      {{- include "dressage.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "dressage.labels" . | nindent 8 }}
      {{- with $v.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ $full }}-{{ .name }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ add $root.Values.rollout.drainSeconds $v.graceSeconds 10 }}
      securityContext:
        {{- include "dressage.podSecurity" $root.Values.runAsUser | nindent 8 }}
      {{- with $root.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- include "dressage.placement" $v | nindent 6 }}
      {{- include "dressage.spread" . | nindent 6 }}
      containers:
        - name: {{ .name }}
          image: {{ include "dressage.image" (dict "root" $root "name" $v.image "digest" $v.digest) }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command: [python, -m, {{ .module }}]
          ports:
            - {name: {{ $portName }}, containerPort: {{ $port }}}
            - {name: metrics, containerPort: 9090}
            {{- if and $root.Values.tls.enabled (not .http) }}
            - {name: health, containerPort: 50052}
            {{- end }}
          env:
            {{- include "dressage.serviceEnv" . | nindent 12 }}
            {{- if .callers }}
            {{- include "dressage.peerEnv" . | trim | nindent 12 }}
            {{- end }}
            {{- with include "dressage.tokenEnv" . | trim }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- if $root.Values.tls.enabled }}
            - {name: {{ .prefix }}_TLS_CERT, value: /etc/dressage/tls/tls.crt}
            - {name: {{ .prefix }}_TLS_KEY, value: /etc/dressage/tls/tls.key}
            {{- if not .http }}
            - {name: {{ .prefix }}_HEALTH_ADDRESS, value: "0.0.0.0:50052"}
            {{- end }}
            {{- if .calls }}
            - {name: {{ .prefix }}_SERVICES_TLS_CA_FILE, value: /etc/dressage/tls/ca.crt}
            {{- end }}
            {{- end }}
            {{- range .env }}
            - {name: {{ .name }}, value: {{ .value | quote }}}
            {{- end }}
            {{- include "dressage.extraEnv" $v.env | nindent 12 }}
          {{- with .envFrom }}
          envFrom:
            - secretRef: {name: {{ . }}}
          {{- end }}
          {{- if .http }}
          {{- include "dressage.httpProbes" (dict "port" $port "scheme" (upper .http)) | nindent 10 }}
          {{- else }}
          {{- include "dressage.probes" (ternary 50052 50051 $root.Values.tls.enabled) | nindent 10 }}
          {{- end }}
          lifecycle:
            preStop: {sleep: {seconds: {{ $root.Values.rollout.drainSeconds }}}}
          resources:
            {{- toYaml $v.resources | nindent 12 }}
          securityContext:
            {{- include "dressage.containerSecurity" $root | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- if $root.Values.tls.enabled }}
            - {name: tls, mountPath: /etc/dressage/tls, readOnly: true}
            {{- end }}
            {{- if not .http }}
            {{- include "dressage.storeMounts" $root | nindent 12 }}
            {{- end }}
            {{- with .mounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {sizeLimit: 2Gi}
        {{- if $root.Values.tls.enabled }}
        - name: tls
          secret: {secretName: {{ .tlsSecret | default (include "dressage.servicesTlsSecret" .) }}}
        {{- end }}
        {{- if not .http }}
        {{- include "dressage.storeVolumes" $root | nindent 8 }}
        {{- end }}
        {{- with .volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "dressage.metadata" . | nindent 2 }}
spec:
  {{- if not .http }}
  # Headless: clients see every pod and take them in turn.
  clusterIP: None
  {{- end }}
  selector:
    {{- include "dressage.selector" . | nindent 4 }}
  ports:
    - {name: {{ $portName }}, port: {{ $port }}, targetPort: {{ $portName }}, appProtocol: {{ .http | default (ternary "https" "kubernetes.io/h2c" $root.Values.tls.enabled) }}}
    - {name: metrics, port: 9090, targetPort: metrics}
{{- if $scaled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  {{- include "dressage.metadata" . | nindent 2 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ $full }}-{{ .name }}}
  minReplicas: {{ $v.autoscaling.minReplicas }}
  maxReplicas: {{ $v.autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: {{ $v.autoscaling.targetCPU }}}}
  behavior:
    scaleDown: {stabilizationWindowSeconds: 300}
{{- end }}
{{- end -}}
