package migrate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/schedule"
)

// cronJob is a CronJob of Kubernetes (batch/v1, v1beta1), as far as it can be converted.
type cronJob struct {
	Kind     string      `yaml:"kind"`
	Items    []yaml.Node `yaml:"items"` // each is read when it is its turn
	Metadata struct {
		Name, Namespace string
		Annotations     map[string]string
	} `yaml:"metadata"`
	Spec struct {
		Schedule                string
		TimeZone                string `yaml:"timeZone"`
		StartingDeadlineSeconds *int64 `yaml:"startingDeadlineSeconds"`
		ConcurrencyPolicy       string `yaml:"concurrencyPolicy"`
		Suspend                 bool
		JobTemplate             struct {
			Spec struct {
				Parallelism           *int
				Completions           *int
				CompletionMode        string `yaml:"completionMode"`
				BackoffLimit          *int   `yaml:"backoffLimit"`
				ActiveDeadlineSeconds *int64 `yaml:"activeDeadlineSeconds"`
				Template              struct {
					Spec struct {
						Containers, InitContainers []container
						Volumes                    []struct{ Name string }
						ServiceAccountName         string            `yaml:"serviceAccountName"`
						NodeSelector               map[string]string `yaml:"nodeSelector"`
					}
				}
			}
		} `yaml:"jobTemplate"`
	} `yaml:"spec"`
}

type container struct {
	Name, Image   string
	Command, Args []string
	Env           []struct {
		Name, Value string
		ValueFrom   struct {
			SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	}
	EnvFrom   []any `yaml:"envFrom"`
	Resources struct{ Limits map[string]string }
}

// Defaults of Kubernetes.
const (
	backoffLimit    = 6
	firstBackoff    = 10 * time.Second
	longestBackoff  = 6 * time.Minute
	longestDeadline = int64(jobconfig.MaxTimeout / time.Second)
)

// deepestList is how many lists may be in each other: what kubectl prints is one.
const deepestList = 10

// CronJobs reads Kubernetes manifests: YAML documents, or the list that kubectl get prints. It notes objects of
// other kinds. The error says that the text is no manifest.
func CronJobs(text []byte) (*Imported, error) {
	if err := fits(text); err != nil {
		return nil, err
	}
	if n := entries(text); n > mostEntries {
		return nil, fmt.Errorf("found %d lines, commas and list items, expected at most %d: import one namespace at a time", n, mostEntries)
	}
	i := &Imported{}
	others := make(map[string]int)
	var take func(place string, c *cronJob, depth int) error
	take = func(place string, c *cronJob, depth int) error {
		if depth > deepestList { // a list may have itself, by an alias
			return fmt.Errorf("%s: found lists in lists, expected at most %d in each other", place, deepestList)
		}
		for n := range c.Items {
			at := fmt.Sprintf("%s, item %d", place, n+1)
			var item cronJob
			if err := c.Items[n].Decode(&item); err != nil {
				return fmt.Errorf("%s: %w", at, err)
			}
			if err := take(at, &item, depth+1); err != nil {
				return err
			}
		}
		if c.Kind == "CronJob" {
			i.cronJob(place, c)
		} else if c.Items == nil {
			others[cmp.Or(words60(c.Kind), "without a kind")]++
		}
		return nil
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	for n := 1; ; n++ {
		var c cronJob
		err := d.Decode(&c)
		if errors.Is(err, io.EOF) {
			break
		}
		place := fmt.Sprintf("document %d", n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", place, err)
		}
		if err := take(place, &c, 0); err != nil {
			return nil, err
		}
	}
	var kinds []string
	for kind, n := range others {
		kinds = append(kinds, fmt.Sprintf("%d of kind %s", n, kind))
	}
	if slices.Sort(kinds); len(kinds) > 0 {
		i.note("passed over: %s; only a CronJob becomes a job", strings.Join(kinds, ", "))
	}
	return i.end(), nil
}

// entries estimates how many nodes a YAML text may have: a node needs a line, a comma, or the mark of an entry
// or of a collection.
func entries(text []byte) (n int) {
	for k, c := range text {
		switch c {
		case '\n', ',', '[', '{':
			n++
		case '-', '?': // "- - -" is three lists in one line
			if k+1 < len(text) && (text[k+1] == ' ' || text[k+1] == '\t') {
				n++
			}
		}
	}
	return n
}

func (i *Imported) cronJob(place string, c *cronJob) {
	place += ", CronJob " + cmp.Or(c.Metadata.Name, "without a name")
	s, job := &c.Spec, &c.Spec.JobTemplate.Spec
	f := newForeign(c.Metadata.Name, place)
	f.Configuration.Cron, f.Configuration.TimeZone, f.Configuration.Disabled = strings.TrimSpace(s.Schedule), s.TimeZone, s.Suspend
	for _, prefix := range []string{"CRON_TZ=", "TZ="} {
		if rest, ok := strings.CutPrefix(f.Configuration.Cron, prefix); ok {
			f.Configuration.TimeZone, f.Configuration.Cron, _ = cutWord(rest)
		}
	}
	loc, err := schedule.Zone(f.Configuration.TimeZone)
	if err != nil {
		i.note("%s: left out: %v", place, err)
		return
	}
	if theirs, err := cron.ParseStandard(f.Configuration.Cron); err != nil {
		i.note("%s: left out: %v", place, err)
		return
	} else if _, every := theirs.(cron.ConstantDelaySchedule); every {
		f.note("%s: Kubernetes counts from when its controller looked; here the count begins at 1970-01-01 00:00 UTC, the same on each host", f.Configuration.Cron)
	} else {
		f.Theirs = within{theirs, loc}
	}
	if f.Configuration.TimeZone == "" {
		f.note("without a timeZone Kubernetes takes that of its controller, mostly UTC; here it is the host's: say timeZone")
	}

	switch n := deref(job.Completions, 1); {
	case job.CompletionMode == "Indexed":
		f.Configuration.ShardingTotalCount = n
		f.note("JOB_COMPLETION_INDEX is the sharding item, from 0 to %d", n-1)
	case n > 1:
		f.note("completions: %d without an index: here the items of a fire are numbered; set shardingTotalCount", n)
	}
	if p := deref(job.Parallelism, 1); p > 1 {
		f.note("parallelism: %d is of all pods together; here maxConcurrency is of each host", p)
	}
	f.guest(func(g *jobconfig.Guest) {
		attempts := min(deref(job.BackoffLimit, backoffLimit), 99) + 1
		g.Retry = jobconfig.RetryPolicy{Attempts: attempts, Backoff: firstBackoff, MaxBackoff: longestBackoff, On: []string{"RETRY", "FAIL", "TRAP", "EXIT"}}
		if attempts == 1 {
			g.Retry = jobconfig.DefaultGuest().Retry
			g.Retry.Attempts = 1
		}
		if d := job.ActiveDeadlineSeconds; d != nil && *d > 0 {
			g.Timeout = time.Duration(min(*d, longestDeadline)) * time.Second
			f.note("activeDeadlineSeconds: %d is of all attempts together; here timeout is of each run of an item", *d)
		}
		if d := s.StartingDeadlineSeconds; d != nil && *d >= 0 {
			g.CatchUpWindow = time.Duration(min(*d, longestDeadline)) * time.Second
		}
	})
	switch s.ConcurrencyPolicy {
	case "Forbid":
		f.Configuration.Misfire = false
	case "Replace":
		f.guest(func(g *jobconfig.Guest) { g.Overlap = jobconfig.OverlapTerminate })
	default:
		f.note("concurrencyPolicy: Allow: here an item runs once at a time, and once more after the run if an instant came meanwhile (misfire)")
	}
	f.container(job.Template.Spec.Containers)
	if n := len(job.Template.Spec.InitContainers); n > 0 {
		f.note("initContainers: %d of them are left out: what they prepare, the module does, or a job that comes before", n)
	}
	for _, v := range job.Template.Spec.Volumes {
		f.note("the volume %s: a directory of the host is granted as dirs (docs/grants.md)", v.Name)
	}
	if a := job.Template.Spec.ServiceAccountName; a != "" {
		f.note("the service account %s: a guest has none; grant it the secrets and addresses that it needs", a)
	}
	if len(job.Template.Spec.NodeSelector) > 0 {
		f.note("nodeSelector: all hosts that have the job's files share its items; leave them out of the directories of others")
	}
	i.add(f)
}

// container notes what ran.
func (f *Foreign) container(list []container) {
	for n, c := range list {
		var parts []string
		for _, p := range slices.Concat(c.Command, c.Args) {
			if strings.ContainsAny(p, " \t\n'\"$") {
				p = strconv.Quote(p)
			}
			parts = append(parts, p)
		}
		line := strings.TrimSpace(c.Image + " " + strings.Join(parts, " "))
		if n == 0 {
			f.Command = line
			f.note("it ran the container %s: its module is to do the same", line)
		} else {
			f.note("another container ran beside it: %s", line)
		}
		for _, e := range c.Env {
			switch ref := e.ValueFrom.SecretKeyRef; {
			case ref.Name != "":
				f.note("environment %s was key %s of the secret %s: grant it as a secret", e.Name, ref.Key, ref.Name)
			case e.Value != "":
				f.note("environment %s=%s: grant it as env", e.Name, e.Value)
			default:
				f.note("environment %s came from elsewhere: grant it as env", e.Name)
			}
		}
		if len(c.EnvFrom) > 0 {
			f.note("envFrom: grant each variable that it reads as env or secret")
		}
		if m := c.Resources.Limits["memory"]; m != "" {
			f.note("the memory limit %s was that of a container; that of a module is memoryLimit, and much smaller as a rule", m)
		}
	}
}

func deref(p *int, standard int) int {
	if p == nil || *p < 0 {
		return standard
	}
	return *p
}

// within is a schedule in a zone.
type within struct {
	cron.Schedule
	loc *time.Location
}

func (w within) Next(t time.Time) time.Time { return w.Schedule.Next(t.In(w.loc)) }
