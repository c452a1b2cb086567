package grants

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// watched runs Watch on a path; its news come over the channel.
func watched(t *testing.T, path string) <-chan Update {
	t.Helper()
	first, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return watchedFrom(t, path, first)
}

func watchedFrom(t *testing.T, path string, first *Set) <-chan Update {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	news, done := make(chan Update, 100), make(chan error, 1)
	go func() { done <- Watch(ctx, path, first, func(u Update) { news <- u }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t, goleak.IgnoreCurrent())
	})
	return news
}

// await waits for news that satisfy the condition.
func await(t *testing.T, news <-chan Update, what string, is func(Update) bool) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case u := <-news:
			if is(u) {
				return
			}
			t.Logf("before %s: %v", what, u.Err)
		case <-late:
			t.Fatalf("%s was not noticed", what)
		}
	}
}

// granting is grants of a variable with a value.
func granting(value string) string { return "grants: [{jobs: a, env: {X: " + value + "}}]\n" }

func has(value string) func(Update) bool {
	return func(u Update) bool { return u.Err == nil && u.Set.For("a", Module{}).Env["X"] == value }
}

// kept says that an earlier value stays in force, with a reason that has a text.
func kept(value, reason string) func(Update) bool {
	return func(u Update) bool {
		return u.Err != nil && strings.Contains(u.Err.Error(), reason) && u.Set.For("a", Module{}).Env["X"] == value
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(name, 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestWatchFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "g.yaml")
	write(t, name, granting("1"))
	news := watched(t, name)

	write(t, name, granting("2"))
	await(t, news, "a file that is written", has("2"))
	write(t, name+".new", granting("3"))
	rename(t, name+".new", name)
	await(t, news, "a file that is renamed into place", has("3"))
	write(t, name, "grants: [{jobs: a, env: {X: 4}")
	await(t, news, "a broken file", kept("3", "not YAML"))
	write(t, name, "")
	await(t, news, "a file that is half written", kept("3", "the file is empty"))
	write(t, name, granting("3"))
	await(t, news, "a file that is as before", has("3"))
	remove(t, name)
	await(t, news, "a removed file", kept("3", "was removed, and what it granted stays in force"))
	write(t, name, granting("5"))
	await(t, news, "a file that is there again", has("5"))

	// The directory around it goes, and another one comes.
	rename(t, dir, dir+".old")
	await(t, news, "a removed directory", kept("5", "was removed"))
	mkdir(t, dir)
	write(t, name, granting("6"))
	await(t, news, "another directory", has("6"))
	remove(t, dir+".old")
}

// What changed between the first reading and the watch is news at once.
func TestWatchFromBefore(t *testing.T) {
	name := filepath.Join(t.TempDir(), "g.yaml")
	write(t, name, granting("1"))
	first, err := Read(name)
	if err != nil {
		t.Fatal(err)
	}
	write(t, name, granting("2"))
	await(t, watchedFrom(t, name, first), "the change before", has("2"))
}

// A ConfigMap is mounted so: each file is a link to ..data/FILE, and ..data a link that is
// turned with a rename.
func TestWatchConfigMap(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprint("directory ", whole), func(t *testing.T) {
			dir := t.TempDir()
			at := func(name string) string { return filepath.Join(dir, name) }
			version := func(n string) {
				t.Helper()
				mkdir(t, at("..v"+n))
				write(t, at("..v"+n+"/g.yaml"), granting(n))
				link(t, "..v"+n, at("..new"))
				rename(t, at("..new"), at("..data"))
			}
			version("1")
			link(t, "..data/g.yaml", at("g.yaml"))
			path := at("g.yaml")
			if whole {
				path = dir
			}
			news := watched(t, path)
			version("2")
			remove(t, at("..v1"))
			await(t, news, "a link that is turned", has("2"))
			version("3")
			remove(t, at("..v2"))
			await(t, news, "another turn", has("3"))
		})
	}
}

func TestWatchDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "grants")
	mkdir(t, dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("b.yaml"), granting("1"))
	news := watched(t, dir)
	write(t, at("a.yaml"), "grants: [{jobs: '*', env: {X: 2}}]")
	await(t, news, "another file", has("2"))
	write(t, at("c.yaml"), "grants: [")
	await(t, news, "a broken file", kept("2", "c.yaml"))
	remove(t, at("c.yaml"))
	await(t, news, "the end of the broken file", has("2"))
	remove(t, at("a.yaml"))
	await(t, news, "a file less", has("1"))
	remove(t, at("b.yaml"))
	await(t, news, "no file", kept("1", "no *.yaml"))
	remove(t, dir)
	await(t, news, "no directory", kept("1", "was removed"))
}

// Files that the grants name are theirs, also when they are not there yet.
func TestWatchNamedFiles(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	name, conf := filepath.Join(dir, "g.yaml"), filepath.Join(elsewhere, "conf")
	write(t, name, granting("1"))
	news := watched(t, name)
	write(t, name, "grants: [{jobs: a, env: {X: 2}, config: {file: "+conf+"}}]")
	await(t, news, "a file that is missing", kept("1", "does not exist"))
	write(t, conf, "one")
	await(t, news, "the missing file", has("2"))
	write(t, conf, "two")
	await(t, news, "a change of it", func(u Update) bool { return string(u.Set.For("a", Module{}).Config) == "two" })
}
