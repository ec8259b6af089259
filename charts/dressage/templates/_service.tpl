{{/* A stateless service, whole: dict root, component, name, module, prefix, values, env (list, YAML), envFrom (Secret), callers and calls (lists of services). */}}
{{- define "dressage.service" -}}
{{- $root := .root -}}
{{- $v := .values -}}
{{- $full := include "dressage.fullname" $root -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "dressage.metadata" . | nindent 2 }}
spec:
  {{- if not $v.autoscaling.enabled }}
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
            - {name: grpc, containerPort: 50051}
            - {name: metrics, containerPort: 9090}
            {{- if $root.Values.tls.enabled }}
            - {name: health, containerPort: 50052}
            {{- end }}
          env:
            {{- include "dressage.serviceEnv" . | nindent 12 }}
            {{- include "dressage.peerEnv" . | trim | nindent 12 }}
            {{- with include "dressage.tokenEnv" . | trim }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- if $root.Values.tls.enabled }}
            - {name: {{ .prefix }}_TLS_CERT, value: /etc/dressage/tls/tls.crt}
            - {name: {{ .prefix }}_TLS_KEY, value: /etc/dressage/tls/tls.key}
            - {name: {{ .prefix }}_HEALTH_ADDRESS, value: "0.0.0.0:50052"}
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
          {{- include "dressage.probes" (ternary 50052 50051 $root.Values.tls.enabled) | nindent 10 }}
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
            {{- include "dressage.storeMounts" $root | nindent 12 }}
      volumes:
        - name: tmp
          emptyDir: {sizeLimit: 2Gi}
        {{- if $root.Values.tls.enabled }}
        - name: tls
          secret: {secretName: {{ include "dressage.servicesTlsSecret" . }}}
        {{- end }}
        {{- include "dressage.storeVolumes" $root | nindent 8 }}
---
# Headless: clients see every pod and take them in turn.
apiVersion: v1
kind: Service
metadata:
  {{- include "dressage.metadata" . | nindent 2 }}
spec:
  clusterIP: None
  selector:
    {{- include "dressage.selector" . | nindent 4 }}
  ports:
    - {name: grpc, port: 50051, targetPort: grpc, appProtocol: {{ ternary "https" "kubernetes.io/h2c" $root.Values.tls.enabled }}}
    - {name: metrics, port: 9090, targetPort: metrics}
{{- if $v.autoscaling.enabled }}
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
