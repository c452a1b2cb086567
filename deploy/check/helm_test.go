package check

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"
)

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	log.SetOutput(io.Discard) // it says that the base is a link
	c, err := loader.LoadDir(filepath.Join(deployDir, "helm/wasmjob"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render is what helm template gives: the objects' texts, by kind and name, and the notes.
func render(t *testing.T, values string) (objects map[string]string, notes string, err error) {
	t.Helper()
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	c := loadChart(t)
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: "wasmjob", Namespace: "jobs", IsInstall: true}, nil)
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, "", err
	}
	objects = make(map[string]string)
	for name, text := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			notes = text
			continue
		}
		for _, document := range strings.Split("\n"+text, "\n---\n") {
			if strings.TrimSpace(document) == "" {
				continue
			}
			var head metav1.PartialObjectMetadata
			if err := yaml.Unmarshal([]byte(document), &head); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			objects[head.Kind+"/"+head.Name] = document
			if head.Namespace != "jobs" {
				t.Errorf("%s %s is in namespace %q", head.Kind, head.Name, head.Namespace)
			}
		}
	}
	return objects, notes, nil
}

// chartKinds are the kinds of the chart with the types of the Kubernetes API.
func chartKinds() map[string]func() any {
	list := kinds()
	list["v1/Secret"] = func() any { return new(corev1.Secret) }
	list["v1/Service"] = func() any { return new(corev1.Service) }
	list["networking.k8s.io/v1/Ingress"] = func() any { return new(networkingv1.Ingress) }
	return list
}

// strictly reads a rendered object strictly, and demands the fields that must be there.
func strictly(t *testing.T, name, text string) any {
	t.Helper()
	var head metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(text), &head); err != nil {
		t.Fatal(err)
	}
	fresh, ok := chartKinds()[head.APIVersion+"/"+head.Kind]
	if !ok {
		t.Fatalf("%s: %s %s is not expected", name, head.APIVersion, head.Kind)
	}
	object := fresh()
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Errorf("%s: %v\n%s", name, err, text)
	}
	value := make(map[string]any)
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	if schema := openapi.SchemaForResourceType(kyaml.TypeMeta{APIVersion: head.APIVersion, Kind: head.Kind}); schema != nil {
		required(t, head.Kind, value, schema.Schema)
	}
	return object
}

func made[T any](t *testing.T, all map[string]any, name string) *T {
	t.Helper()
	o, ok := all[reflect.TypeFor[T]().Name()+"/"+name].(*T)
	if !ok {
		t.Fatalf("no %s %s among %s", reflect.TypeFor[T]().Name(), name, slices.Sorted(maps.Keys(all)))
	}
	return o
}

// rendered is a release by the chart's values in a file.
func rendered(t *testing.T, file string) (all map[string]any, notes string) {
	t.Helper()
	texts, notes, err := render(t, string(read(t, "helm/values/"+file)))
	if err != nil {
		t.Fatal(err)
	}
	all = make(map[string]any)
	for name, text := range texts {
		all[name] = strictly(t, name, text)
	}
	return all, notes
}

// TestChart renders the chart with three files of values, and holds each result against the API's types, the pod security that the
// base demands, and the program, which reads the settings.
func TestChart(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir(filepath.Join(deployDir, "helm/values"))
	if err != nil || len(files) != 3 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, f := range files {
		t.Run(f.Name(), func(t *testing.T) {
			t.Parallel()
			all, _ := rendered(t, f.Name())
			d := made[appsv1.Deployment](t, all, "wasmjob")
			pod := labels.Set(d.Spec.Template.Labels)
			selects(t, "the Deployment", d.Spec.Selector, pod)
			selects(t, "the PodDisruptionBudget", made[policyv1.PodDisruptionBudget](t, all, "wasmjob").Spec.Selector, pod)
			selects(t, "the NetworkPolicy", &made[networkingv1.NetworkPolicy](t, all, "wasmjob").Spec.PodSelector, pod)
			for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
				selects(t, "the spread over nodes", c.LabelSelector, pod)
			}
			if name := d.Spec.Template.Spec.ServiceAccountName; name != made[corev1.ServiceAccount](t, all, "wasmjob").Name {
				t.Errorf("service account %q does not exist", name)
			}
			mounted(t, d.Spec.Template.Spec, all)
			shown := started(t, d.Spec.Template.Spec, all)
			reachable(t, made[networkingv1.NetworkPolicy](t, all, "wasmjob"), pod, shown)
			sized(t, d.Spec.Template.Spec.Containers[0], shown)
			if share := d.Spec.Template.Spec.ShareProcessNamespace; share == nil || !*share {
				t.Error("the host is process 1: no shareProcessNamespace")
			}
			evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
			if err != nil {
				t.Fatal(err)
			}
			verdict := policy.AggregateCheckResults(evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &d.Spec.Template.ObjectMeta, &d.Spec.Template.Spec))
			if !verdict.Allowed {
				t.Errorf("pod security: %s: %s", verdict.ForbiddenReason(), verdict.ForbiddenDetail())
			}
		})
	}
}

// mounted checks that what is mounted is there, and that what the chart names as its own is made by it.
func mounted(t *testing.T, pod corev1.PodSpec, all map[string]any) {
	t.Helper()
	used := make(map[string]bool)
	for _, v := range pod.Volumes {
		used[v.Name] = false
		switch {
		case v.PersistentVolumeClaim != nil && strings.HasPrefix(v.PersistentVolumeClaim.ClaimName, "wasmjob-"):
			made[corev1.PersistentVolumeClaim](t, all, v.PersistentVolumeClaim.ClaimName)
		case v.ConfigMap != nil && strings.HasPrefix(v.ConfigMap.Name, "wasmjob-"):
			made[corev1.ConfigMap](t, all, v.ConfigMap.Name)
		case v.Secret != nil && *v.Secret.DefaultMode&0o007 != 0:
			t.Errorf("volume %s: mode %o is more than hosts take", v.Name, *v.Secret.DefaultMode)
		}
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, m := range c.VolumeMounts {
			if _, ok := used[m.Name]; !ok {
				t.Errorf("%s mounts %s, which is no volume", c.Name, m.Name)
			}
			used[m.Name] = true
		}
	}
	for name, is := range used {
		if !is {
			t.Errorf("volume %s is mounted nowhere", name)
		}
	}
}

// started gives the program the settings and the files, and returns what it makes of them.
func started(t *testing.T, pod corev1.PodSpec, all map[string]any) map[string]any {
	t.Helper()
	host := pod.Containers[0]
	stages, _ := dockerfile(t)
	environ := make(map[string]string)
	for _, e := range describe(t, stages[len(stages)-1]).env {
		k, v, _ := strings.Cut(e, "=")
		environ[k] = v
	}
	config := made[corev1.ConfigMap](t, all, host.EnvFrom[0].ConfigMapRef.Name)
	maps.Copy(environ, config.Data)
	for _, e := range host.Env {
		switch {
		case e.ValueFrom == nil:
			environ[e.Name] = e.Value
		case e.ValueFrom.FieldRef != nil:
			environ[e.Name] = "10.1.2.3"
		default:
			environ[e.Name] = "someone:secret"
		}
	}
	given := maps.Clone(environ)
	delete(given, "WASMJOB_USERS") // it is not there now, of which the program warns
	shown := settings(t, host.Args, given)
	enough(t, shown, time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second)
	for variable, dir := range map[string]string{"WASMJOB_GRANTS": "files", "WASMJOB_ALERTS": "files", "WASMJOB_USERS": "users", "WASMJOB_DATA": "data", "WASMJOB_ADMIN_TOKEN_FILE": "tmp"} {
		file := environ[variable]
		if file == "" {
			continue
		}
		under := func(m corev1.VolumeMount) bool { return m.Name == dir && strings.HasPrefix(file, m.MountPath+"/") }
		if !slices.ContainsFunc(host.VolumeMounts, under) {
			t.Errorf("%s is %s, which volume %s does not have", variable, file, dir)
		}
	}
	return shown
}

// reachable demands that hosts reach each other, the registry and the database of the history.
func reachable(t *testing.T, p *networkingv1.NetworkPolicy, pod labels.Set, shown map[string]any) {
	t.Helper()
	peers := func(list []networkingv1.NetworkPolicyPeer) bool {
		return slices.ContainsFunc(list, func(peer networkingv1.NetworkPolicyPeer) bool {
			if peer.PodSelector == nil || peer.NamespaceSelector != nil {
				return false
			}
			s, err := metav1.LabelSelectorAsSelector(peer.PodSelector)
			return err == nil && s.Matches(pod)
		})
	}
	has := func(ports []networkingv1.NetworkPolicyPort, want string) bool {
		return slices.ContainsFunc(ports, func(port networkingv1.NetworkPolicyPort) bool {
			return port.Port != nil && *port.Port == intstr.Parse(want)
		})
	}
	if !slices.ContainsFunc(p.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
		return peers(r.From) && has(r.Ports, "admin")
	}) || !slices.ContainsFunc(p.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
		return peers(r.To) && has(r.Ports, "admin")
	}) {
		t.Error("hosts do not reach each other")
	}
	history, _ := shown["history"].(string)
	zk, _ := shown["zk"].(string)
	_, database, _ := strings.Cut(history, "://")
	for _, address := range append(strings.Split(zk, ","), database) {
		address, _, _ = strings.Cut(address, "/")
		_, port, ok := strings.Cut(address, ":")
		if ok && !slices.ContainsFunc(p.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool { return has(r.Ports, port) }) {
			t.Errorf("hosts do not reach %s", address)
		}
	}
	for _, r := range p.Spec.Egress {
		if len(r.Ports) == 0 {
			t.Error("a rule of the policy lets everything out")
		}
	}
}

// sized demands a limit of memory whose half holds what the table of docs/performance.md counts, and a collector that works harder
// before.
func sized(t *testing.T, c corev1.Container, shown map[string]any) {
	t.Helper()
	limit := c.Resources.Limits.Memory().Value()
	if least := int64(512 << 20); limit < least {
		t.Errorf("the limit of memory is %d", limit)
	}
	for _, e := range c.Env {
		if e.Name != "GOMEMLIMIT" {
			continue
		}
		soft := resource.MustParse(strings.TrimSuffix(e.Value, "B"))
		if s := soft.Value(); s > limit*8/10 || s < limit*7/10 {
			t.Errorf("GOMEMLIMIT is %s, and the limit %d", e.Value, limit)
		}
	}
	if fmt.Sprint(shown["maxConcurrency"]) == "0" {
		t.Error("the limit of memory counts guests, and their number is not bounded")
	}
}

// TestChartIsTheBase: the chart with its own values gives what kustomize makes of the base, but for names and labels.
func TestChartIsTheBase(t *testing.T) {
	t.Parallel()
	if to, err := os.Readlink(filepath.Join(deployDir, "helm/wasmjob/base")); err != nil || to != "../../kubernetes/base" {
		t.Fatalf("the chart's base is %q: %v", to, err)
	}
	base := build(t, "kubernetes/base")
	all, notes := rendered(t, "base.yaml")
	if !strings.Contains(notes, "3 host(s) of namespace prod, 976 MiB each.") || strings.Contains(notes, "cannot be") {
		t.Errorf("notes:\n%s", notes)
	}
	if want, got := get[corev1.ConfigMap](t, base).Data, made[corev1.ConfigMap](t, all, "wasmjob").Data; !maps.Equal(want, got) {
		t.Errorf("settings %v, want %v", got, want)
	}
	d := made[appsv1.Deployment](t, all, "wasmjob")
	d.Spec.Template.Annotations = nil
	d.Spec.Template.Spec.Containers[0].ImagePullPolicy = ""
	for name, pair := range map[string][2]any{
		"Deployment":            {get[appsv1.Deployment](t, base).Spec, d.Spec},
		"PodDisruptionBudget":   {get[policyv1.PodDisruptionBudget](t, base).Spec, made[policyv1.PodDisruptionBudget](t, all, "wasmjob").Spec},
		"NetworkPolicy":         {get[networkingv1.NetworkPolicy](t, base).Spec, made[networkingv1.NetworkPolicy](t, all, "wasmjob").Spec},
		"PersistentVolumeClaim": {get[corev1.PersistentVolumeClaim](t, base).Spec, made[corev1.PersistentVolumeClaim](t, all, "wasmjob-plugins").Spec},
	} {
		want, got := unlabelled(t, pair[0]), unlabelled(t, pair[1])
		if want != got {
			t.Errorf("%s: the base has\n%s\nthe chart has\n%s", name, want, got)
		}
	}
}

// unlabelled is a value as YAML, without what a release adds to labels, and with the names that the base has.
func unlabelled(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, key := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart"} {
				delete(v, key)
			}
			if ref, ok := v["configMapRef"].(map[string]any); ok {
				ref["name"] = "wasmjob" // kustomize adds a digest, the chart an annotation
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(tree)
	out, err := yaml.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestChartValues: values take effect where they are to.
func TestChartValues(t *testing.T) {
	t.Parallel()
	all, notes := rendered(t, "production.yaml")
	d := made[appsv1.Deployment](t, all, "wasmjob")
	host := d.Spec.Template.Spec.Containers[0]
	if *d.Spec.Replicas != 5 || host.Image != "registry.example/team/wasmjob:v1" || host.Resources.Limits.Memory().String() != "4624Mi" || *d.Spec.Template.Spec.TerminationGracePeriodSeconds != 315 {
		t.Errorf("%d of %s with %s for %d s", *d.Spec.Replicas, host.Image, host.Resources.Limits.Memory(), *d.Spec.Template.Spec.TerminationGracePeriodSeconds)
	}
	config := made[corev1.ConfigMap](t, all, "wasmjob").Data
	for key, want := range map[string]string{"WASMJOB_ADMIN_URL": "https://wasmjob.example.com", "WASMJOB_ADMIN_PROXIES": "10.0.0.0/8", "WASMJOB_ZK": "zk.example:2281", "WASMJOB_ZK_TLS": "true", "WASMJOB_OTLP": "http://otel.observability:4318"} {
		if config[key] != want {
			t.Errorf("%s is %q, want %q", key, config[key], want)
		}
	}
	if text := made[corev1.Secret](t, all, "wasmjob-users").StringData["users.yaml"]; !strings.Contains(text, "sre:\n      admin: '*'") || !strings.Contains(text, "clientSecretFile: /etc/wasmjob/oidc/client-secret") {
		t.Errorf("users:\n%s", text)
	}
	secret := filepath.Join(t.TempDir(), "client-secret")
	users := filepath.Join(filepath.Dir(secret), "users.yaml")
	text := strings.Replace(made[corev1.Secret](t, all, "wasmjob-users").StringData["users.yaml"], "/etc/wasmjob/oidc/client-secret", secret, 1)
	for file, data := range map[string]string{secret: "secret", users: text} {
		if err := os.WriteFile(file, []byte(data), 0o440); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), program(t), "access", "user", "list", "--users", users).CombinedOutput(); err != nil {
		t.Errorf("the program reads no users: %v\n%s", err, out)
	}
	in := made[networkingv1.Ingress](t, all, "wasmjob").Spec
	service := made[corev1.Service](t, all, in.Rules[0].HTTP.Paths[0].Backend.Service.Name)
	if service.Spec.Ports[0].Name != in.Rules[0].HTTP.Paths[0].Backend.Service.Port.Name || !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels)) {
		t.Errorf("the ingress leads to %+v", service.Spec)
	}
	if strings.Contains(notes, "cannot be") {
		t.Errorf("notes:\n%s", notes)
	}
	if _, notes, err := render(t, `grants: "grants: []"`); err != nil || !strings.Contains(notes, "what jobs are granted cannot be\nreached") {
		t.Errorf("%v\n%s", err, notes)
	}
	one, _ := rendered(t, "alone.yaml")
	if s := made[appsv1.Deployment](t, one, "wasmjob").Spec; s.Strategy.Type != appsv1.RecreateDeploymentStrategyType || s.Strategy.RollingUpdate != nil {
		t.Errorf("a host alone is rolled by %+v", s.Strategy)
	}
	if c := made[corev1.PersistentVolumeClaim](t, one, "wasmjob-data").Spec; *c.StorageClassName != "fast" || c.Resources.Requests.Storage().String() != "1Gi" {
		t.Errorf("%+v", c)
	}
}

// TestChartRefuses: values that contradict each other, and names that there are not, fail with the reason.
func TestChartRefuses(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"replicas: 0":                               "replicas",
		"replica: 3":                                "replica",
		"history: {kind: disk}":                     "history",
		"registry: {kind: embedded}":                "replicas: found 3, expected 1: registry.kind is embedded",
		"registry: {zookeeper: {servers: []}}":      "registry.zookeeper.servers: found none",
		"history: {kind: file}":                     "history.kind: found file, expected database",
		"history: {url: db}":                        `history.url: found "db", expected postgres://HOST:PORT/NAME`,
		"history: {url: 'mysql://a:b@db/x'}":        "history.url: found user or password in it",
		"plugins: {existingClaim: a, configMap: b}": "plugins.existingClaim: found a beside plugins.configMap b, expected one of them",
		"ingress: {enabled: true}":                  "ingress.host: found none",
		"oidc: {issuer: 'https://x'}":               "oidc: expected clientId, clientSecret and groups beside issuer",
		"oidc: {clientId: x}":                       "oidc.issuer: found none beside clientId",
		"oidc: {issuer: 'https://x', clientId: a, clientSecret: b, groups: {a: {admin: x}}}": "oidc.issuer: expected ingress.enabled with ingress.tlsSecret",
		"{oidc: {issuer: 'https://x'}, users: {existingSecret: u}}":                          "oidc.issuer: found it beside users.existingSecret",
		"alertsSecret: x":            "alertsSecret: found it without alerts",
		"resources: {limitMiB: 600}": "resources.limitMiB: found 600, expected 976 at least for sizing: 20 modules of 18 MiB and 16 guests of 8 MiB in half of it",
		"settings: {PATH: x}":        "settings: found PATH, expected names that begin with WASMJOB_",
		"settings: {WASMJOB_ZK: x}":  "settings: found WASMJOB_ZK, which another value of the chart sets",
	} {
		if _, _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", values, err)
		}
	}
}
