package check

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
)

// TestCompose loads the file as docker compose does: against the schema of the
// Compose specification, with anchors, paths and references resolved.
func TestCompose(t *testing.T) {
	t.Parallel()
	options, err := cli.NewProjectOptions([]string{filepath.Join(deployDir, "docker-compose.yaml")}, cli.WithConsistency(true))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	host, err := project.GetService("host")
	if err != nil {
		t.Fatal(err)
	}
	environ := make(map[string]string)
	for name, value := range host.Environment {
		if value == nil {
			t.Errorf("%s has no value: it would be taken from whoever starts it", name)
			continue
		}
		environ[name] = *value
	}
	environ["WASMJOB_PLUGINS"] = "/plugins"
	config := settings(t, []string{"run"}, environ)
	expect(t, config, map[string]any{"registry": "zookeeper", "namespace": "prod"})
	if host.StopGracePeriod == nil {
		t.Fatal("no stop_grace_period: the default is shorter than the drain timeout")
	}
	enough(t, config, time.Duration(*host.StopGracePeriod))
	if host.Init == nil || !*host.Init {
		t.Error("the host is process 1, which the kernel protects from the dead man's timer: no init")
	}
	if n := *host.Deploy.Replicas; n < 2 {
		t.Errorf("%d hosts are no cluster", n)
	}

	// Every server that hosts and servers are told of is there.
	named := strings.Split(environ["WASMJOB_ZK"], ",")
	if len(named) != 3 {
		t.Errorf("%d ZooKeeper servers, want 3", len(named))
	}
	ids := make(map[string]bool)
	for _, address := range named {
		name, port, _ := strings.Cut(address, ":")
		zk, err := project.GetService(name)
		if err != nil || port != "2181" {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if zk.HealthCheck == nil {
			t.Errorf("%s has no health check, but others wait for it", name)
		}
		if _, ok := host.DependsOn[name]; !ok {
			t.Errorf("the hosts do not wait for %s", name)
		}
		servers, id := zk.Environment["ZOO_SERVERS"], zk.Environment["ZOO_MY_ID"]
		if servers == nil || id == nil || !strings.Contains(*servers, "server."+*id+"="+name+":") {
			t.Errorf("%s is not the server of its number", name)
			continue
		}
		if ids[*id] {
			t.Errorf("number %s is used twice", *id)
		}
		ids[*id] = true
	}
}
