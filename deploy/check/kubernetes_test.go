package check

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"
)

// objects are what an overlay gives, by kind; each kind occurs once.
type objects map[string]any

// kinds are those that there may be, with the types of the Kubernetes API.
func kinds() map[string]func() any {
	return map[string]func() any{
		"v1/Namespace":                       func() any { return new(corev1.Namespace) },
		"v1/ServiceAccount":                  func() any { return new(corev1.ServiceAccount) },
		"v1/ConfigMap":                       func() any { return new(corev1.ConfigMap) },
		"v1/PersistentVolumeClaim":           func() any { return new(corev1.PersistentVolumeClaim) },
		"apps/v1/Deployment":                 func() any { return new(appsv1.Deployment) },
		"policy/v1/PodDisruptionBudget":      func() any { return new(policyv1.PodDisruptionBudget) },
		"networking.k8s.io/v1/NetworkPolicy": func() any { return new(networkingv1.NetworkPolicy) },
	}
}

// build runs kustomize and reads each object strictly into its type: a field
// that Kubernetes does not know, or of another type, is an error.
func build(t *testing.T, dir string) objects {
	t.Helper()
	result, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(deployDir, dir))
	if err != nil {
		t.Fatal(err)
	}
	found := make(objects)
	for _, r := range result.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		var head metav1.TypeMeta
		if err := yaml.Unmarshal(text, &head); err != nil {
			t.Fatal(err)
		}
		fresh, ok := kinds()[head.APIVersion+"/"+head.Kind]
		if !ok {
			t.Errorf("%s %s: not expected", head.APIVersion, head.Kind)
			continue
		}
		object := fresh()
		if err := yaml.UnmarshalStrict(text, object); err != nil {
			t.Errorf("%s %s: %v", head.Kind, r.GetName(), err)
		}
		if _, twice := found[head.Kind]; twice {
			t.Errorf("two objects of kind %s", head.Kind)
		}
		found[head.Kind] = object
		value := make(map[string]any)
		if err := yaml.Unmarshal(text, &value); err != nil {
			t.Fatal(err)
		}
		schema := openapi.SchemaForResourceType(kyaml.TypeMeta{APIVersion: head.APIVersion, Kind: head.Kind})
		if schema == nil {
			t.Errorf("%s %s has no schema", head.APIVersion, head.Kind)
			continue
		}
		required(t, head.Kind, value, schema.Schema)
	}
	return found
}

// required walks along a schema of the Kubernetes API and demands the fields
// that must be there. What may be there was checked against the types, which
// are newer.
func required(t *testing.T, path string, value any, schema *spec.Schema) {
	t.Helper()
	if schema.Ref.String() != "" {
		resolved, err := openapi.Resolve(&schema.Ref, openapi.Schema())
		if err != nil {
			t.Fatal(err)
		}
		schema = resolved
	}
	switch value := value.(type) {
	case map[string]any:
		for _, field := range schema.Required {
			if _, ok := value[field]; !ok {
				t.Errorf("%s: %s is missing", path, field)
			}
		}
		for field, v := range value {
			if s, ok := schema.Properties[field]; ok {
				required(t, path+"."+field, v, &s)
			}
		}
	case []any:
		if schema.Items == nil || schema.Items.Schema == nil {
			return
		}
		for i, v := range value {
			required(t, fmt.Sprintf("%s[%d]", path, i), v, schema.Items.Schema)
		}
	}
}

func get[T any](t *testing.T, o objects) *T {
	t.Helper()
	kind := reflect.TypeFor[T]().Name()
	object, ok := o[kind].(*T)
	if !ok {
		t.Fatalf("no %s", kind)
	}
	return object
}

func TestKubernetes(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"kubernetes/base", "kubernetes/example"} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			o := build(t, dir)
			d := get[appsv1.Deployment](t, o)
			pod := labels.Set(d.Spec.Template.Labels)
			selects(t, "the Deployment", d.Spec.Selector, pod)
			selects(t, "the PodDisruptionBudget", get[policyv1.PodDisruptionBudget](t, o).Spec.Selector, pod)
			selects(t, "the NetworkPolicy", &get[networkingv1.NetworkPolicy](t, o).Spec.PodSelector, pod)
			for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
				selects(t, "the spread over nodes", c.LabelSelector, pod)
			}
			if name := d.Spec.Template.Spec.ServiceAccountName; name != get[corev1.ServiceAccount](t, o).Name {
				t.Errorf("service account %q does not exist", name)
			}
			volumes(t, d.Spec.Template.Spec, o)
			shown := starts(t, d.Spec.Template.Spec, get[corev1.ConfigMap](t, o))
			reachable(t, get[networkingv1.NetworkPolicy](t, o), pod, shown)
			sized(t, d.Spec.Template.Spec.Containers[0], shown)
			expect(t, shown, map[string]any{"history": "postgres://postgres.postgres:5432/wasmjob"}) // which all hosts share

			// What the label of the namespace demands of every pod.
			evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
			if err != nil {
				t.Fatal(err)
			}
			level := api.Level(get[corev1.Namespace](t, o).Labels[api.EnforceLevelLabel])
			if level != api.LevelRestricted {
				t.Errorf("the namespace enforces %q, want %q", level, api.LevelRestricted)
			}
			verdict := policy.AggregateCheckResults(evaluator.EvaluatePod(
				api.LevelVersion{Level: level, Version: api.LatestVersion()}, &d.Spec.Template.ObjectMeta, &d.Spec.Template.Spec))
			if !verdict.Allowed {
				t.Errorf("pod security: %s: %s", verdict.ForbiddenReason(), verdict.ForbiddenDetail())
			}
			for _, c := range slices.Concat(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers) {
				if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
					t.Errorf("%s can write to its root", c.Name)
				}
			}
		})
	}
}

func selects(t *testing.T, who string, s *metav1.LabelSelector, pod labels.Set) {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	if selector.Empty() || !selector.Matches(pod) {
		t.Errorf("%s selects %s, but the pods are %s", who, selector, pod)
	}
}

// volumes checks that what is mounted is there, and what is there is mounted.
func volumes(t *testing.T, pod corev1.PodSpec, o objects) {
	t.Helper()
	used := make(map[string]bool)
	for _, v := range pod.Volumes {
		used[v.Name] = false
		if c := v.PersistentVolumeClaim; c != nil && c.ClaimName != get[corev1.PersistentVolumeClaim](t, o).Name {
			t.Errorf("volume %s: claim %s does not exist", v.Name, c.ClaimName)
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
	for name, mounted := range used {
		if !mounted {
			t.Errorf("volume %s is mounted nowhere", name)
		}
	}
}

// starts gives the program what the manifest gives it, and returns the settings that it has then.
func starts(t *testing.T, pod corev1.PodSpec, config *corev1.ConfigMap) map[string]any {
	t.Helper()
	host := pod.Containers[0]
	stages, _ := dockerfile(t)
	environ := make(map[string]string)
	img := describe(t, stages[len(stages)-1])
	for _, e := range img.env {
		k, v, _ := strings.Cut(e, "=")
		environ[k] = v
	}
	if img.uid != uint32(*pod.SecurityContext.RunAsUser) {
		t.Errorf("the pod runs as %d, but the image's directories belong to %d", *pod.SecurityContext.RunAsUser, img.uid)
	}
	for _, from := range host.EnvFrom {
		if from.ConfigMapRef == nil || from.ConfigMapRef.Name != config.Name {
			t.Errorf("envFrom %v: the ConfigMap is %s", from, config.Name)
		}
		for k, v := range config.Data {
			environ[k] = v
		}
	}
	for _, e := range host.Env {
		value := e.Value
		if from := e.ValueFrom; from != nil {
			switch {
			case from.FieldRef != nil && from.FieldRef.FieldPath == "status.podIP":
				value = "10.1.2.3"
			case from.SecretKeyRef != nil:
				value = "someone:secret"
			default:
				t.Errorf("%s: what it comes from is not known here", e.Name)
			}
		}
		environ[e.Name] = value
	}
	shown := settings(t, host.Args, environ)
	expect(t, shown, map[string]any{"registry": "zookeeper", "namespace": "prod", "serverIp": "10.1.2.3", "admin": ":9770"})
	enough(t, shown, time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second)
	if share := pod.ShareProcessNamespace; share == nil || !*share {
		t.Error("the host is process 1, which the kernel protects from the dead man's timer: no shareProcessNamespace")
	}

	ports := make(map[string]bool)
	for _, p := range host.Ports {
		ports[p.Name] = true
	}
	for path, probe := range map[string]*corev1.Probe{"/healthz": host.LivenessProbe, "/readyz": host.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || !ports[probe.HTTPGet.Port.StrVal] {
			t.Errorf("no probe of %s at a port of the container", path)
		}
	}
	return shown
}

// TestEveryManifestIsUsed: a file that no kustomization names is applied by
// nobody and checked by nothing.
func TestEveryManifestIsUsed(t *testing.T) {
	t.Parallel()
	var top struct {
		Resources []string `json:"resources"`
	}
	if err := yaml.Unmarshal(read(t, "kubernetes/base/kustomization.yaml"), &top); err != nil {
		t.Fatal(err)
	}
	var example struct {
		Components []string `json:"components"`
	}
	if err := yaml.Unmarshal(read(t, "kubernetes/example/kustomization.yaml"), &example); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(deployDir, "kubernetes")
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch parts := strings.Split(filepath.ToSlash(name), "/"); {
		case parts[0] == "example" || name == "base/kustomization.yaml":
		case parts[0] == "components":
			if !slices.Contains(example.Components, "../components/"+parts[1]) {
				t.Errorf("%s: the example does not use the component", name)
			}
		case !slices.Contains(top.Resources, parts[len(parts)-1]):
			t.Errorf("%s: kustomization.yaml does not name it", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
