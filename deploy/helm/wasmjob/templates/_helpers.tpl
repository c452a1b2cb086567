{{- define "wasmjob.name" -}}
{{- if contains "wasmjob" .Release.Name -}}{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}{{- printf "%s-wasmjob" (.Release.Name | trunc 42 | trimSuffix "-") -}}{{- end -}}
{{- end -}}

{{- define "wasmjob.selector" -}}
app.kubernetes.io/component: host
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/name: wasmjob
{{- end -}}

{{- define "wasmjob.labels" -}}
{{ include "wasmjob.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- /* An object of the base, with the name, namespace and labels of the release. */ -}}
{{- define "wasmjob.object" -}}
{{- $text := .root.Files.Get (printf "base/%s" .file) -}}
{{- if not $text }}{{- fail (printf "the chart has no base/%s: package it with what deploy/helm/wasmjob/base points to" .file) }}{{- end -}}
{{- $o := fromYaml $text -}}
{{- $_ := set $o.metadata "name" (include "wasmjob.name" .root) -}}
{{- $_ := set $o.metadata "namespace" .root.Release.Namespace -}}
{{- $_ := set $o.metadata "labels" (include "wasmjob.labels" .root | fromYaml) -}}
{{- toYaml $o -}}
{{- end -}}

{{- /* What the limit of memory is to be, in MiB: twice what modules and guests take, for these have half of it. */ -}}
{{- define "wasmjob.sizedMiB" -}}
{{- $s := .Values.sizing -}}
{{- max 512 (mul 2 (add (mul 18 (int $s.modules)) (mul (int $s.concurrency) (int $s.guestMiB)))) -}}
{{- end -}}

{{- define "wasmjob.limitMiB" -}}
{{- if .Values.resources.limitMiB -}}{{- int .Values.resources.limitMiB -}}{{- else -}}{{- include "wasmjob.sizedMiB" . -}}{{- end -}}
{{- end -}}

{{- define "wasmjob.adminURL" -}}
{{- if .Values.ingress.enabled -}}{{ printf "%s://%s" (ternary "https" "http" (ne .Values.ingress.tlsSecret "")) .Values.ingress.host }}{{- end -}}
{{- end -}}

{{- /* Values that contradict each other. */ -}}
{{- define "wasmjob.check" -}}
{{- $v := .Values -}}
{{- if eq $v.registry.kind "embedded" -}}
{{-   if ne (int $v.replicas) 1 }}{{- fail (printf "replicas: found %d, expected 1: registry.kind is embedded, and a host alone has its registry" (int $v.replicas)) }}{{- end -}}
{{- else -}}
{{-   if not $v.registry.zookeeper.servers }}{{- fail "registry.zookeeper.servers: found none, expected HOST:PORT of each server, or registry.kind embedded" }}{{- end -}}
{{-   if eq $v.history.kind "file" }}{{- fail "history.kind: found file, expected database: pods of registry.kind zookeeper have no volume that lasts, and a file would be gone with each" }}{{- end -}}
{{- end -}}
{{- if eq $v.history.kind "database" -}}
{{-   if not (regexMatch "^(postgres|postgresql|mysql)://[^/]+/.+" $v.history.url) }}{{- fail (printf "history.url: found %q, expected postgres://HOST:PORT/NAME or mysql://HOST:PORT/NAME for history.kind database" $v.history.url) }}{{- end -}}
{{-   if contains "@" $v.history.url }}{{- fail "history.url: found user or password in it, expected them in the Secret that history.credentialsSecret names" }}{{- end -}}
{{- end -}}
{{- if and $v.plugins.existingClaim $v.plugins.configMap }}{{- fail (printf "plugins.existingClaim: found %s beside plugins.configMap %s, expected one of them" $v.plugins.existingClaim $v.plugins.configMap) }}{{- end -}}
{{- if and $v.ingress.enabled (not $v.ingress.host) }}{{- fail "ingress.host: found none, expected the name by which browsers reach the console: ingress.enabled is true" }}{{- end -}}
{{- if $v.oidc.issuer -}}
{{-   if $v.users.existingSecret }}{{- fail "oidc.issuer: found it beside users.existingSecret, expected one of them: users.yaml has a section oidc" }}{{- end -}}
{{-   if not (and $v.oidc.clientId $v.oidc.clientSecret $v.oidc.groups) }}{{- fail "oidc: expected clientId, clientSecret and groups beside issuer" }}{{- end -}}
{{-   if not (and $v.ingress.enabled $v.ingress.tlsSecret) }}{{- fail "oidc.issuer: expected ingress.enabled with ingress.tlsSecret: browsers come back from the issuer to https://ingress.host" }}{{- end -}}
{{- else if or $v.oidc.clientId $v.oidc.clientSecret }}{{- fail "oidc.issuer: found none beside clientId or clientSecret, expected the issuer's URL" }}
{{- end -}}
{{- if and $v.alertsSecret (not $v.alerts) }}{{- fail "alertsSecret: found it without alerts, which would read it" }}{{- end -}}
{{- $need := int (include "wasmjob.sizedMiB" .) -}}
{{- if and $v.resources.limitMiB (lt (int $v.resources.limitMiB) $need) }}{{- fail (printf "resources.limitMiB: found %d, expected %d at least for sizing: %d modules of 18 MiB and %d guests of %d MiB in half of it" (int $v.resources.limitMiB) $need (int $v.sizing.modules) (int $v.sizing.concurrency) (int $v.sizing.guestMiB)) }}{{- end -}}
{{- range $name, $_ := $v.settings -}}
{{-   if not (hasPrefix "WASMJOB_" $name) }}{{- fail (printf "settings: found %s, expected names that begin with WASMJOB_" $name) }}{{- end -}}
{{-   if has $name (list "WASMJOB_REGISTRY" "WASMJOB_ZK" "WASMJOB_ZK_TLS" "WASMJOB_NAMESPACE" "WASMJOB_DATA" "WASMJOB_HISTORY" "WASMJOB_GRANTS" "WASMJOB_ALERTS" "WASMJOB_USERS" "WASMJOB_DRAIN_TIMEOUT" "WASMJOB_MAX_CONCURRENCY" "WASMJOB_ADMIN" "WASMJOB_ADMIN_URL" "WASMJOB_ADMIN_PROXIES" "WASMJOB_CACHE" "WASMJOB_SERVER_IP") }}{{- fail (printf "settings: found %s, which another value of the chart sets" $name) }}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The settings of the hosts. */ -}}
{{- define "wasmjob.settings" -}}
{{- $v := .Values -}}
{{- $s := dict "WASMJOB_NAMESPACE" $v.registry.namespace "WASMJOB_DRAIN_TIMEOUT" (printf "%ds" (int $v.drainSeconds)) "WASMJOB_MAX_CONCURRENCY" (printf "%d" (int $v.sizing.concurrency)) -}}
{{- if eq $v.registry.kind "embedded" -}}
{{-   $_ := set $s "WASMJOB_REGISTRY" "embedded" }}{{- $_ := set $s "WASMJOB_DATA" "/data/registry" -}}
{{- else -}}
{{-   $_ := set $s "WASMJOB_REGISTRY" "zookeeper" }}{{- $_ := set $s "WASMJOB_ZK" (join "," $v.registry.zookeeper.servers) -}}
{{-   if $v.registry.zookeeper.tls }}{{- $_ := set $s "WASMJOB_ZK_TLS" "true" }}{{- end -}}
{{- end -}}
{{- if eq $v.history.kind "database" }}{{- $_ := set $s "WASMJOB_HISTORY" $v.history.url }}{{- end -}}
{{- if eq $v.history.kind "file" }}{{- $_ := set $s "WASMJOB_HISTORY" "/data/history.jsonl" }}{{- end -}}
{{- if $v.grants }}{{- $_ := set $s "WASMJOB_GRANTS" "/etc/wasmjob/files/grants.yaml" }}{{- end -}}
{{- if $v.alerts }}{{- $_ := set $s "WASMJOB_ALERTS" "/etc/wasmjob/files/alerts.yaml" }}{{- end -}}
{{- if or $v.users.existingSecret $v.oidc.issuer }}{{- $_ := set $s "WASMJOB_USERS" "/etc/wasmjob/users/users.yaml" }}{{- end -}}
{{- with include "wasmjob.adminURL" . }}{{- $_ := set $s "WASMJOB_ADMIN_URL" . }}{{- end -}}
{{- with $v.ingress.proxies }}{{- $_ := set $s "WASMJOB_ADMIN_PROXIES" (join "," .) }}{{- end -}}
{{- range $name, $value := $v.settings }}{{- $_ := set $s $name (toString $value) }}{{- end -}}
{{- toYaml $s -}}
{{- end -}}
