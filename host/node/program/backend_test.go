package program

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/wasmjob/wasmjob/host/cli/command"
)

// TestRegistryAddress: --registry names kind and servers at once, and says the
// same as --zk.
func TestRegistryAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		file     string
		env      []string
		args     []string
		registry string
		connect  string
		mistake  string
	}{
		{"", nil, nil, registryEmbedded, "", ""},
		{"", nil, []string{"--registry", "zookeeper://zk1"}, registryZooKeeper, "zk1:2181", ""},
		{"", nil, []string{"--registry", "zookeeper://zk1:2182,zk2/jobs/a"}, registryZooKeeper, "zk1:2182,zk2:2181/jobs/a", ""},
		{"", nil, []string{"--registry", "zookeeper://zk1,zk2/"}, registryZooKeeper, "zk1:2181,zk2:2181", ""},
		{"", []string{"WASMJOB_REGISTRY=zookeeper://zk1"}, nil, registryZooKeeper, "zk1:2181", ""},
		{"registry: zookeeper://zk1/jobs\n", nil, nil, registryZooKeeper, "zk1:2181/jobs", ""},
		{"registry: zookeeper://zk1\n", nil, []string{"--registry", "zookeeper://zk2"}, registryZooKeeper, "zk2:2181", ""},
		{"", nil, []string{"--registry", "zookeeper://zk1", "--zk", "zk1:2181"}, registryZooKeeper, "zk1:2181", ""},
		{"", nil, []string{"--registry", "zookeeper", "--zk", "zk1"}, registryZooKeeper, "zk1:2181", ""},

		{"", []string{"WASMJOB_ZK=zk2"}, []string{"--registry", "zookeeper://zk1"}, "", "", "--registry: the servers are zk1:2181 here and zk2:2181 in zk (WASMJOB_ZK); leave one of the two out"},
		{"registry: zookeeper://zk1\n", nil, []string{"--zk", "zk1/jobs"}, "", "", "FILE:1: registry: the servers are zk1:2181 here and zk1:2181/jobs in zk (--zk); leave one of the two out"},
		{"", nil, []string{"--registry", "zookeeper://"}, "", "", `--registry: "zookeeper://" is not an address of ZooKeeper; want zookeeper://HOST:PORT,HOST:PORT/PATH: "" is not a server`},
		{"", nil, []string{"--registry", "zookeeper://zk1:x"}, "", "", `--registry: "zookeeper://zk1:x" is not an address of ZooKeeper; want zookeeper://HOST:PORT,HOST:PORT/PATH: "zk1:x" is not a server`},
		{"", nil, []string{"--registry", "zookeeper://zk1/a//b"}, "", "", `"/a//b" is not a path in the registry`},
		{"", nil, []string{"--registry", "zookeeper://zk1/a?timeout=1s"}, "", "", `--registry: "zookeeper://zk1/a?timeout=1s" has more than servers and a path; want zookeeper://HOST:PORT,HOST:PORT/PATH`},
		{"", []string{"WASMJOB_REGISTRY=zookeeper://user:secret@zk1"}, nil, "", "", "WASMJOB_REGISTRY: there are credentials in the address; want zookeeper://HOST:PORT,HOST:PORT/PATH, and --zk-credentials-file for them"},
		{"", nil, []string{"--registry", "etcd://zk1"}, "", "", `--registry: "etcd://zk1" is not a registry; want embedded, zookeeper or zookeeper://HOST:PORT,HOST:PORT/PATH`},
	} {
		l, _, err := load(t, c.file, c.env, append([]string{"--plugins", "P"}, c.args...))
		switch {
		case c.mistake != "":
			if err == nil || !strings.Contains(err.Error(), c.mistake) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%q %q %q: %v\nwant %s", c.file, c.env, c.args, err, c.mistake)
			}
		case err != nil:
			t.Errorf("%q %q %q: %v", c.file, c.env, c.args, err)
		case l.Registry != c.registry || l.ZooKeeper.Connect != c.connect:
			t.Errorf("%q %q %q: registry %q, servers %q", c.file, c.env, c.args, l.Registry, l.ZooKeeper.Connect)
		case c.connect != "" && l.backend().String() != "ZooKeeper, "+c.connect:
			t.Errorf("%q %q %q is shown as %q", c.file, c.env, c.args, l.backend())
		}
	}
}

// TestRegistryAddressOfCommands: a command that is given one asks the registry itself.
func TestRegistryAddressOfCommands(t *testing.T) {
	t.Parallel()
	p := &command.Program{RegistryFlags: addRegistryFlags}
	cmd := &cobra.Command{}
	target := p.AddTarget(cmd)
	flags := cmd.Flags()
	if err := flags.Parse([]string{"--registry", "zookeeper://zk1/jobs"}); err != nil {
		t.Fatal(err)
	}
	if direct, err := target.Direct(); !direct || err != nil {
		t.Errorf("direct: %v, %v", direct, err)
	}
	l, err := loadRegistry(nil, flags)
	if err != nil || l.ZooKeeper.Connect != "zk1:2181/jobs" || l.origins["zk"] != "--registry, which names them" {
		t.Errorf("%+v, %v", l, err)
	}
}
