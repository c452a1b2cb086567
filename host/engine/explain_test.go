package engine_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/explain"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/i18n"
)

// stage is a cluster whose history is explained.
type stage struct {
	*cluster
	mu       sync.Mutex
	sessions map[int]*registrytest.FaultyCenter
	dead     map[int]bool
	changes  []history.Change
}

func newStage(t *testing.T) *stage {
	s := &stage{cluster: newCluster(t), sessions: make(map[int]*registrytest.FaultyCenter), dead: make(map[int]bool)}
	s.wrap = func(n int, l *lease) registry.Center {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sessions[n] = registrytest.Faulty(l, nil)
		return s.sessions[n]
	}
	terms := make(map[string]int)
	s.config = func(c *engine.Config) {
		engine.SetToken(c, func() string {
			s.mu.Lock()
			defer s.mu.Unlock()
			terms[c.ServerIP]++
			return fmt.Sprintf("1-%08x", terms[c.ServerIP])
		})
	}
	return s
}

// start runs a host, and waits until it is in its jobs: the first leads.
func (s *stage) start(n int, jobs ...engine.Job) *node {
	nd := s.cluster.start(n, jobs...)
	synctest.Wait()
	time.Sleep(10 * time.Millisecond)
	return nd
}

// doubt changes how far a host's session can be relied on.
func (s *stage) doubt(n int, level registry.Trust) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[n].Doubt(level)
}

// die kills a host as kill -9 does: what it has to say from then on is in no history.
func (s *stage) die(n int) {
	synctest.Wait()
	s.mu.Lock()
	s.dead[n] = true
	s.mu.Unlock()
	nd := s.hosts[fmt.Sprintf("10.0.0.%d", n)]
	before := len(s.events)
	nd.kill()
	<-nd.done
	s.forget(n, before)
}

// forget has the history of a host lost, from an event on.
func (s *stage) forget(n, before int) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	var events []event.Event
	var from []int
	var at []time.Time
	for i, e := range s.events {
		if i < before || s.from[i] != n {
			events, from, at = append(events, e), append(from, s.from[i]), append(at, s.at[i])
		}
	}
	s.events, s.from, s.at = events, from, at
}

// does notes that somebody changed something.
func (s *stage) does(err error, c history.Change) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	c.Time = time.Now()
	s.changes = append(s.changes, c)
}

// asked is the answer as lines: the verdict, and the sentences.
func (s *stage) asked(q explain.Question) string {
	s.cluster.mu.Lock()
	f := explain.Facts{Events: slices.Clone(s.events), Changes: s.changes, Now: time.Now()}
	s.cluster.mu.Unlock()
	// Files of several hosts come one after the other.
	slices.SortStableFunc(f.Events, func(a, b event.Event) int { return strings.Compare(a.Host, b.Host) })
	a := explain.Explain(q, f)
	lines := []string{string(a.Verdict)}
	for _, sentence := range a.Sentences {
		if len(sentence.Events)+len(sentence.Changes) == 0 && sentence.Kind != explain.KindHistory && sentence.Kind != explain.KindDue && a.Verdict != explain.Unknown {
			s.t.Errorf("%q rests on nothing", sentence.Text)
		}
		lines = append(lines, sentence.Text)
	}
	return strings.Join(lines, "\n")
}

// minute is so many minutes after the begin of the hour.
func minute(m int) time.Time { return time.Date(2000, 1, 1, 0, m, 0, 0, time.UTC) }

func until(t time.Time) { time.Sleep(time.Until(t)) }

func number(n int) *int { return &n }

// TestExplain asks what became of fires in real histories: hosts play each situation in
// virtual time.
func TestExplain(t *testing.T) {
	t.Parallel()
	for _, c := range explained {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				c.play(t, s)
				synctest.Wait()
				if got, want := s.asked(c.ask), strings.TrimSpace(c.want); got != want {
					t.Errorf("got\n%s\n\nwant\n%s\n\nof\n%s", got, want, s.all())
				}
				ask := c.ask
				ask.Language = i18n.Chinese
				got := s.asked(ask)
				if want := strings.TrimSpace(c.chinese); want != "" && got != want {
					t.Errorf("got\n%s\n\nwant\n%s", got, want)
				}
				_, sentences, _ := strings.Cut(got, "\n")
				if words := latin.FindAllString(names.ReplaceAllString(sentences, ""), -1); len(words) > 0 {
					t.Errorf("%q in\n%s", words, got)
				}
			})
		})
	}
}

// latin are words and signs of another language than Chinese; names may have them, and what
// is quoted.
var (
	latin = regexp.MustCompile(`\p{Latin}+|[,;:?!] `)
	names = regexp.MustCompile(`“[^”]*”|\b(alice|bob|carol|dave|erin|frank|GMT)\b|10\.0\.0\.\d@-@1-\d+`)
)

// explained are the situations. chinese is what some of them want in Chinese.
var explained = []struct {
	name          string
	play          func(t *testing.T, s *stage)
	ask           explain.Question
	want, chinese string
}{
	{
		name: "in time",
		play: func(t *testing.T, s *stage) {
			s.start(1, job(definition("j", "0 * * * * ?", 3), sleeper(2*time.Second)))
			until(minute(1).Add(10 * time.Second))
		},
		ask: explain.Question{Job: "j"},
		want: `
ran
Items 0-2 were due at 00:01:00 and began in time on host 10.0.0.1.
They succeeded, the last at 00:01:02, after at most 2s.
`,
	},
	{
		name: "one item in time, while all run",
		play: func(t *testing.T, s *stage) {
			s.start(1, job(definition("j", "0 * * * * ?", 3), sleeper(20*time.Second)))
			until(minute(2).Add(10 * time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(2), Item: number(1)},
		want: `
running
Item 1 was due at 00:02:00 and began in time on host 10.0.0.1.
It has not ended, as far as the histories go.
`,
	},
	{
		name: "a host that is cut off; another has few slots",
		play: func(t *testing.T, s *stage) {
			d := definition("j", "0 * * * * ?", 4)
			d.Props["wasm.maxConcurrency"] = "1"
			d.Failover = true
			s.start(1, job(d, sleeper(5*time.Second)))
			s.start(2, job(d, sleeper(5*time.Second)))
			until(minute(2).Add(50 * time.Second))
			s.doubt(1, registry.TrustSuspect)
			until(minute(3).Add(7 * time.Second))
			s.doubt(1, registry.TrustLost)
			until(minute(3).Add(50 * time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(3)},
		want: `
late
Item 1 was due at 00:03:00 and began at 00:03:05 on host 10.0.0.2, 5s late.
On host 10.0.0.2 it waited 5s for a free slot.
It succeeded at 00:03:10, after 5s.
Items 2-3 were due at 00:03:00 and began from 00:03:10 to 00:03:15 on host 10.0.0.2 as a catch-up, up to 15s late.
Host 10.0.0.1, which had them, got no answer from the registry: its session was in doubt from 00:02:50 on, and nothing began there.
The session of host 10.0.0.1 had ended: host 10.0.0.2 saw that at 00:03:07.
Host 10.0.0.2, the leader, sharded the items at 00:03:07: instances changed.
Host 10.0.0.2 got them at 00:03:07.
On host 10.0.0.2 they waited up to 8s for a free slot.
They succeeded, the last at 00:03:20, after at most 5s.
Item 0 was due at 00:03:00 and began in time on host 10.0.0.2.
It succeeded at 00:03:05, after 5s.
`,
		chinese: `
late
分片 1 应于 00:03:00 执行，于 00:03:05 才在主机 10.0.0.2 上开始，延迟 5 秒。
它在主机 10.0.0.2 上等待空闲槽位 5 秒。
它于 00:03:10 成功，耗时 5 秒。
分片 2-3 应于 00:03:00 执行，于 00:03:10 至 00:03:15 才在主机 10.0.0.2 上开始（补执行），延迟最多 15 秒。
拥有它们的主机 10.0.0.1 没有得到注册中心的应答：其会话自 00:02:50 起存疑，那里没有启动任何任务。
主机 10.0.0.1 的会话已结束：主机 10.0.0.2 于 00:03:07 发现。
主节点（主机 10.0.0.2）于 00:03:07 进行了分片：实例有变化。
主机 10.0.0.2 于 00:03:07 得到它们。
它们在主机 10.0.0.2 上等待空闲槽位最多 8 秒。
它们都成功了，最后一个于 00:03:20 成功，耗时最多 5 秒。
分片 0 应于 00:03:00 执行，并按时在主机 10.0.0.2 上开始。
它于 00:03:05 成功，耗时 5 秒。
`,
	},
	{
		name: "failover",
		play: func(t *testing.T, s *stage) {
			d := definition("j", "0 * * * * ?", 2)
			d.Failover = true
			s.start(1, job(d, sleeper(20*time.Second)))
			s.start(2, job(d, sleeper(20*time.Second)))
			until(minute(2).Add(5 * time.Second))
			s.die(1)
			until(minute(3).Add(-time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(2)},
		want: `
late
Item 1 was due at 00:02:00 and began in time on host 10.0.0.1.
Host 10.0.0.1 had it; the last that it reported is of 00:02:00.
The session of host 10.0.0.1 had ended: host 10.0.0.2 saw that at 00:02:05.
Failover gave it to host 10.0.0.2, where it began at 00:02:05.
It succeeded at 00:02:25, after 20s.
Item 0 was due at 00:02:00 and began in time on host 10.0.0.2.
It succeeded at 00:02:20, after 20s.
`,
	},
	{
		name: "a host is stopped while an item runs, and its history is away",
		play: func(t *testing.T, s *stage) {
			config := s.config
			s.config = func(c *engine.Config) { config(c); c.DrainTimeout = 5 * time.Second }
			d := definition("j", "0 * * * * ?", 2)
			d.Failover = true
			s.start(1, job(d, sleeper(20*time.Second)))
			first := s.hosts["10.0.0.1"]
			s.start(2, job(d, sleeper(20*time.Second)))
			until(minute(2).Add(5 * time.Second))
			first.stop()
			<-first.done
			s.forget(1, 0)
			until(minute(3).Add(-time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(2), Item: number(1)},
		want: `
late
Item 1 was due at 00:02:00; host 10.0.0.1 had begun it, and failover gave it to host 10.0.0.2, where it began at 00:02:10.
Host 10.0.0.1 left the job while it ran: host 10.0.0.2 saw that at 00:02:10.
It succeeded at 00:02:30, after 20s.
The history of 10.0.0.1, which is not here any more, could not be had: what happened there is not in this answer.
`,
		chinese: `
late
分片 1 应于 00:02:00 执行；主机 10.0.0.1 已启动它，失效转移将它交给主机 10.0.0.2，它于 00:02:10 在那里开始。
主机 10.0.0.1 在它运行期间离开了作业：主机 10.0.0.2 于 00:02:10 发现。
它于 00:02:30 成功，耗时 20 秒。
无法取得已不在的 10.0.0.1 的历史：那里发生的事不在此回答中。
`,
	},
	{
		name: "a host is stopped while an item runs, and failover is off",
		play: func(t *testing.T, s *stage) {
			config := s.config
			s.config = func(c *engine.Config) { config(c); c.DrainTimeout = 5 * time.Second }
			d := definition("j", "0 * * * * ?", 2)
			s.start(1, job(d, sleeper(20*time.Second)))
			first := s.hosts["10.0.0.1"]
			s.start(2, job(d, sleeper(20*time.Second)))
			until(minute(2).Add(5 * time.Second))
			first.stop()
			<-first.done
			s.forget(1, 0)
			until(minute(3).Add(-time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(2), Item: number(1)},
		want: `
lost
Item 1 was due at 00:02:00 and began on host 10.0.0.1; the histories do not show when.
Host 10.0.0.2 closed the run of host 10.0.0.1 at 00:02:10: its host 10.0.0.1@-@1-00000001 left the job while it ran, and failover is off.
The history of 10.0.0.1, which is not here any more, could not be had: what happened there is not in this answer.
`,
	},
	{
		name: "lost, because failover is off",
		play: func(t *testing.T, s *stage) {
			d := definition("j", "0 * * * * ?", 2)
			s.start(1, job(d, sleeper(20*time.Second)))
			s.start(2, job(d, sleeper(20*time.Second)))
			until(minute(2).Add(5 * time.Second))
			s.die(1)
			until(minute(3).Add(-time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(2)},
		want: `
lost
Item 1 was due at 00:02:00 and began in time on host 10.0.0.1.
Host 10.0.0.1 had it; the last that it reported is of 00:02:00.
The session of host 10.0.0.1 had ended: host 10.0.0.2 saw that at 00:02:05.
Host 10.0.0.2 closed the run of host 10.0.0.1 at 00:02:05: its host 10.0.0.1@-@1-00000001 died while it ran, and failover is off.
Item 0 was due at 00:02:00 and began in time on host 10.0.0.2.
It succeeded at 00:02:20, after 20s.
`,
		chinese: `
lost
分片 1 应于 00:02:00 执行，并按时在主机 10.0.0.1 上开始。
它当时属于主机 10.0.0.1；该主机最后一次报告在 00:02:00。
主机 10.0.0.1 的会话已结束：主机 10.0.0.2 于 00:02:05 发现。
主机 10.0.0.2 于 00:02:05 关闭了主机 10.0.0.1 的这次运行：其主机 10.0.0.1@-@1-00000001 在运行它时崩溃，而失效转移已关闭。
分片 0 应于 00:02:00 执行，并按时在主机 10.0.0.2 上开始。
它于 00:02:20 成功，耗时 20 秒。
`,
	},
	{
		name: "still running, and made up for",
		play: func(t *testing.T, s *stage) {
			s.start(1, job(definition("j", "0 * * * * ?", 1), sleeper(80*time.Second)))
			until(minute(4).Add(30 * time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(2)},
		want: `
late
Item 0 was due at 00:02:00 and began at 00:02:20 on host 10.0.0.1 as soon as its run before had ended, 20s late.
Host 10.0.0.1 did not begin it at 00:02:00: the item still runs; it runs again right after.
It succeeded at 00:03:40, after 1m20s.
`,
	},
	{
		name: "still running, and coalesced",
		play: func(t *testing.T, s *stage) {
			s.start(1, job(definition("j", "0 * * * * ?", 1), sleeper(150*time.Second)))
			until(minute(4).Add(30 * time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(2)},
		want: `
coalesced
Item 0 was due at 00:02:00 and did not run for that instant: host 10.0.0.1 reported at 00:02:00: the item still runs; it runs again right after.
It ran next for 00:03:00: it began at 00:03:30 on host 10.0.0.1.
`,
		chinese: `
coalesced
分片 0 应于 00:02:00 执行，但没有为该时刻运行：主机 10.0.0.1 于 00:02:00 报告：分片仍在运行；之后立即再次运行。
它的下一次运行对应 00:03:00：于 00:03:30 在主机 10.0.0.1 上开始。
`,
	},
	{
		name: "still running, and misfire is off",
		play: func(t *testing.T, s *stage) {
			d := definition("j", "0 * * * * ?", 1)
			d.Misfire = false
			s.start(1, job(d, sleeper(80*time.Second)))
			until(minute(4).Add(30 * time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(2)},
		want: `
skipped
Item 0 was due at 00:02:00 and did not run: host 10.0.0.1 reported at 00:02:00: the item still runs; misfire is off.
`,
	},
	{
		name: "an item that somebody has disabled",
		play: func(t *testing.T, s *stage) {
			n := s.start(1, job(definition("j", "0 * * * * ?", 2), sleeper(time.Second)))
			until(minute(1).Add(30 * time.Second))
			s.does(n.operator().DisableItem(t.Context(), "j", 1), history.Change{Who: "alice", From: "10.9.9.9", What: "disable", Job: "j", Item: number(1), Why: "its data is broken"})
			until(minute(2).Add(30 * time.Second))
		},
		ask: explain.Question{Job: "j"},
		want: `
disabled
Item 1 was due at 00:02:00 and did not run: host 10.0.0.1 reported at 00:02:00: the item is paused.
alice did "pause" of item 1 at 00:01:30, from 10.9.9.9: its data is broken.
Item 0 was due at 00:02:00 and began in time on host 10.0.0.1.
It succeeded at 00:02:01, after 1s.
`,
		chinese: `
disabled
分片 1 应于 00:02:00 执行，但没有运行：主机 10.0.0.1 于 00:02:00 报告：分片已暂停。
00:01:30 对分片 1 执行了“暂停”，操作者：alice，来源：10.9.9.9，原因：“its data is broken”。
分片 0 应于 00:02:00 执行，并按时在主机 10.0.0.1 上开始。
它于 00:02:01 成功，耗时 1 秒。
`,
	},
	{
		name: "a job that is disabled, and no record of by whom",
		play: func(t *testing.T, s *stage) {
			n := s.start(1, job(definition("j", "0 * * * * ?", 2), sleeper(time.Second)))
			until(minute(1).Add(30 * time.Second))
			if err := n.operator().Disable(t.Context(), "j"); err != nil {
				t.Fatal(err)
			}
			until(minute(2).Add(30 * time.Second))
		},
		ask: explain.Question{Job: "j"},
		want: `
disabled
Items 0-1 were due at 00:02:00 and did not run: host 10.0.0.1 reported at 00:02:00: the job is paused on this server.
The histories do not have who did that.
`,
	},
	{
		name: "retried, and then well",
		play: func(t *testing.T, s *stage) {
			d := definition("j", "0 * * * * ?", 1)
			s.start(1, job(d, &guest{digest: "r", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
				if inv.Context.Attempt < 3 {
					return abi.Result{Outcome: abi.OutcomeRetry, Message: "the file is not there yet"}
				}
				return ok
			}}))
			until(minute(1).Add(30 * time.Second))
		},
		ask: explain.Question{Job: "j"},
		want: `
ran
Item 0 was due at 00:01:00 and began in time on host 10.0.0.1.
Attempt 1 ended at 00:01:00: RETRY (the file is not there yet).
Attempt 2 ended at 00:01:01: RETRY (the file is not there yet).
It succeeded at 00:01:03, after 0s.
`,
	},
	{
		name: "retried, and failed",
		play: func(t *testing.T, s *stage) {
			d := definition("j", "0 * * * * ?", 1)
			d.Props["wasm.retry.attempts"] = "6"
			s.start(1, job(d, &guest{digest: "r", run: func(context.Context, *abi.Invocation) abi.Result {
				return abi.Result{Outcome: abi.OutcomeRetry, Message: "the file is not there yet"}
			}}))
			until(minute(1).Add(58 * time.Second))
		},
		ask: explain.Question{Job: "j"},
		want: `
failed
Item 0 was due at 00:01:00 and began in time on host 10.0.0.1.
Attempt 1 ended at 00:01:00: RETRY (the file is not there yet).
Attempt 2 ended at 00:01:01: RETRY (the file is not there yet).
3 more attempts failed, the last at 00:01:15: RETRY (the file is not there yet).
It failed for good at 00:01:31, in attempt 6: RETRY (the file is not there yet).
`,
		chinese: `
failed
分片 0 应于 00:01:00 执行，并按时在主机 10.0.0.1 上开始。
第 1 次尝试于 00:01:00 结束：要求重试（“the file is not there yet”）。
第 2 次尝试于 00:01:01 结束：要求重试（“the file is not there yet”）。
另有 3 次尝试失败，最后一次在 00:01:15：要求重试（“the file is not there yet”）。
它在第 6 次尝试后于 00:01:31 最终失败：要求重试（“the file is not there yet”）。
`,
	},
	{
		name: "never due",
		play: func(t *testing.T, s *stage) {
			s.start(1, job(definition("j", "0 0/5 * * * ?", 1), sleeper(time.Second)))
			until(minute(6))
		},
		ask: explain.Question{Job: "j", At: minute(3)},
		want: `
never due
The job was not due at 2000-01-01 00:03:00: its schedule then, "0 0/5 * * * ?" GMT, has no such instant; the one before is 2000-01-01 00:00:00, the next 2000-01-01 00:05:00.
`,
	},
	{
		name: "never due, because somebody changed the cron",
		play: func(t *testing.T, s *stage) {
			d := definition("j", "0 * * * * ?", 1)
			n := s.start(1, job(d, sleeper(time.Second)))
			until(minute(2).Add(30 * time.Second))
			d.Cron = "0 0/5 * * * ?"
			n.host.Apply([]engine.Job{job(d, sleeper(time.Second))}, nil)
			s.does(nil, history.Change{Who: "bob", From: "file", What: "edit cron", Job: "j", Before: `{"cron":"0 * * * * ?"}`, After: `{"cron":"0 0/5 * * * ?"}`})
			until(minute(6))
		},
		ask: explain.Question{Job: "j", At: minute(3)},
		want: `
never due
The job was not due at 2000-01-01 00:03:00: its schedule then, "0 0/5 * * * ?" GMT, has no such instant; the one before is 2000-01-01 00:00:00, the next 2000-01-01 00:05:00.
The schedule became "0 0/5 * * * ?" GMT at 2000-01-01 00:02:30; it was "0 * * * * ?" GMT.
bob did "edit cron" of the job at 2000-01-01 00:02:30, from file (cron "0 * * * * ?" → "0 0/5 * * * ?").
`,
		chinese: `
never due
作业在 2000-01-01 00:03:00 无需执行：当时的计划“0 0/5 * * * ?”（GMT）没有该时刻；前一个是 2000-01-01 00:00:00，下一个是 2000-01-01 00:05:00。
计划于 2000-01-01 00:02:30 变为“0 0/5 * * * ?”（GMT）；之前是“0 * * * * ?”（GMT）。
2000-01-01 00:02:30 对作业执行了“修改 cron”，操作者：“bob”，来源：定义文件（“cron”：“0 * * * * ?” → “0 0/5 * * * ?”）。
`,
	},
	{
		name: "due before the cron was changed",
		play: func(t *testing.T, s *stage) {
			d := definition("j", "0 * * * * ?", 1)
			n := s.start(1, job(d, sleeper(time.Second)))
			until(minute(2).Add(30 * time.Second))
			d.Cron = "0 0/5 * * * ?"
			n.host.Apply([]engine.Job{job(d, sleeper(time.Second))}, nil)
			until(minute(6))
		},
		ask: explain.Question{Job: "j", At: minute(2)},
		want: `
ran
Item 0 was due at 00:02:00 and began in time on host 10.0.0.1.
It succeeded at 00:02:01, after 1s.
`,
	},
	{
		name: "all hosts were down, and the catch-up is late",
		play: func(t *testing.T, s *stage) {
			d := definition("j", "0 * * * * ?", 2)
			n := s.start(1, job(d, sleeper(time.Second)))
			until(minute(1).Add(30 * time.Second))
			n.stop()
			<-n.done
			until(minute(2).Add(20 * time.Second))
			s.start(2, job(d, sleeper(time.Second)))
			until(minute(2).Add(40 * time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(2)},
		want: `
late
Items 0-1 were due at 00:02:00 and began at 00:02:20 on host 10.0.0.2 as a catch-up, 20s late.
The last that had the job before was host 10.0.0.1, until 00:01:30: the host is stopping.
Host 10.0.0.2 came to the job at 00:02:20.
Host 10.0.0.2, the leader, sharded the items at 00:02:20: instances changed.
Host 10.0.0.2 got them at 00:02:20.
They succeeded, the last at 00:02:21, after at most 1s.
`,
	},
	{
		name: "all hosts were down for too long",
		play: func(t *testing.T, s *stage) {
			d := definition("j", "0 * * * * ?", 2)
			s.start(1, job(d, sleeper(time.Second)))
			until(minute(1).Add(30 * time.Second))
			s.die(1)
			until(minute(20).Add(20 * time.Second))
			s.start(2, job(d, sleeper(time.Second)))
			until(minute(20).Add(40 * time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(2)},
		want: `
coalesced
Items 0-1 were due at 00:02:00 and did not run for that instant: host 10.0.0.2 reported at 00:20:20: 5 instants from here on came due while no host had the item; one catch-up runs instead, for 2000-01-01T00:20:00Z.
Host 10.0.0.1 had them; the last that it reported is of 00:01:01.
The session of host 10.0.0.1 had ended: host 10.0.0.2 saw that at 00:20:20.
They ran next for 00:20:00: they began at 00:20:20 on host 10.0.0.2.
`,
	},
	{
		name: "no host had the job",
		play: func(t *testing.T, s *stage) {
			d := definition("j", "0 * * * * ?", 2)
			d.Misfire = false
			n := s.start(1, job(d, sleeper(time.Second)))
			until(minute(1).Add(30 * time.Second))
			n.host.Apply(nil, nil)
			until(minute(2).Add(20 * time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(2)},
		want: `
no host
Items 0-1 were due at 00:02:00 and did not run: none of the hosts whose histories there are had the job then.
The last that had the job before was host 10.0.0.1, until 00:01:30: its definition is gone.
`,
	},
	{
		name: "stopped by an operator",
		play: func(t *testing.T, s *stage) {
			d := definition("j", "0 * * * * ?", 2)
			n := s.start(1, job(d, sleeper(time.Second)))
			until(minute(1).Add(30 * time.Second))
			s.does(n.operator().Shutdown(t.Context(), "j", "10.0.0.1", ""), history.Change{Who: "carol", From: "10.9.9.9", What: "shutdown", Job: "j", Host: "10.0.0.1", Why: "maintenance"})
			until(minute(2).Add(20 * time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(2)},
		want: `
no host
Items 0-1 were due at 00:02:00 and did not run: none of the hosts whose histories there are had the job then.
The last that had the job before was host 10.0.0.1, until 00:01:31: its instance was removed by an operator.
carol did "drain" on host 10.0.0.1 at 00:01:30, from 10.9.9.9: maintenance.
`,
	},
	{
		name: "a module that is refused",
		play: func(t *testing.T, s *stage) {
			s.start(1, job(definition("j", "0 * * * * ?", 1), &guest{digest: "bad", bad: errors.New("job_execute is missing")}))
			until(minute(2).Add(20 * time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(2)},
		want: `
refused
The histories have no host that had a job "j".
Host 10.0.0.1 refused the job at 2000-01-01 00:00:00: job_execute is missing.
`,
	},
	{
		name: "a host that drains hands over",
		play: func(t *testing.T, s *stage) {
			d := definition("j", "0 * * * * ?", 4)
			d.Props["wasm.maxConcurrency"] = "1"
			first := s.start(1, job(d, sleeper(10*time.Second)))
			until(minute(1).Add(5 * time.Second))
			s.start(2, job(d, sleeper(10*time.Second)))
			first.stop()
			<-first.done
			until(minute(1).Add(58 * time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(1)},
		want: `
late
Item 1 was due at 00:01:00 and was begun in time on host 10.0.0.1.
Host 10.0.0.1 gave the run up at 00:01:05: handed back unstarted: the host is stopping.
It began again at 00:01:05 on host 10.0.0.2, as a catch-up.
It succeeded at 00:01:15, after 10s.
Items 2-3 were due at 00:01:00 and were begun in time on host 10.0.0.1.
Host 10.0.0.1 gave the run up at 00:01:05: handed back unstarted: the host is stopping.
They began again from 00:01:15 to 00:01:25 on host 10.0.0.2, as a catch-up.
On host 10.0.0.2 they waited up to 20s for a free slot.
They succeeded, the last at 00:01:35, after at most 10s.
Item 0 was due at 00:01:00 and began in time on host 10.0.0.1.
It succeeded at 00:01:10, after 10s.
`,
	},
	{
		name: "triggered",
		play: func(t *testing.T, s *stage) {
			n := s.start(1, job(definition("j", "", 2), sleeper(time.Second)))
			until(minute(1).Add(30 * time.Second))
			s.does(n.operator().Trigger(t.Context(), "j"), history.Change{Who: "dave", From: "10.9.9.9", What: "trigger", Job: "j", Why: "to test it"})
			until(minute(2))
		},
		ask: explain.Question{Job: "j"},
		want: `
ran
Items 0-1 were triggered at 00:01:30 and began in time on host 10.0.0.1.
dave did "run" of the job at 00:01:30, from 10.9.9.9: to test it.
They succeeded, the last at 00:01:31, after at most 1s.
`,
	},
	{
		name: "triggered for some items while these run",
		play: func(t *testing.T, s *stage) {
			n := s.start(1, job(definition("j", "0 * * * * ?", 3), sleeper(8*time.Second)))
			until(minute(1))
			s.does(nil, history.Change{Who: "carol", What: "trigger", Job: "j", Error: "forbidden", After: "items 1"})
			until(minute(1).Add(3 * time.Second))
			n.triggers(t, "j", args(t, "1", "x"))
			s.does(nil, history.Change{Who: "dave", What: "trigger", Job: "j", After: args(t, "1", "x").Record()})
			until(minute(1).Add(30 * time.Second))
		},
		ask: explain.Question{Job: "j"},
		want: `
late
Item 1 was triggered at 00:01:03 and began at 00:01:08 on host 10.0.0.1, 5.01s late.
dave did "run" of the job at 00:01:03 (items 1 and parameter "x").
It waited for its run before, which ended at 00:01:08.
It succeeded at 00:01:16, after 8s.
`,
		chinese: `
late
分片 1 于 00:01:03 被触发，于 00:01:08 才在主机 10.0.0.1 上开始，延迟 5.01 秒。
00:01:03 对作业执行了“触发”，操作者：dave（“items 1 and parameter "x"”）。
它等待上一次运行，其于 00:01:08 结束。
它于 00:01:16 成功，耗时 8 秒。
`,
	},
	{
		name: "triggered for an item that is disabled",
		play: func(t *testing.T, s *stage) {
			n := s.start(1, job(definition("j", "0 * * * * ?", 3), sleeper(8*time.Second)))
			until(minute(1).Add(3 * time.Second))
			n.triggers(t, "j", args(t, "1", ""))
			s.does(nil, history.Change{Who: "dave", What: "trigger", Job: "j", After: "items 1"})
			s.does(n.operator().DisableItem(t.Context(), "j", 1), history.Change{Who: "erin", What: "disable", Job: "j", Item: number(1)})
			until(minute(1).Add(30 * time.Second))
		},
		ask: explain.Question{Job: "j"},
		want: `
disabled
Item 1 was triggered at 00:01:03 and did not run: host 10.0.0.1 reported at 00:01:08: the item is paused.
dave did "run" of the job at 00:01:03 (items 1).
erin did "pause" of item 1 at 00:01:03.
`,
	},
	{
		name: "triggered with items while it ran",
		play: func(t *testing.T, s *stage) {
			n := s.start(1, job(definition("j", "0 * * * * ?", 1), sleeper(8*time.Second)))
			until(minute(1).Add(3 * time.Second))
			n.triggers(t, "j", args(t, "0", ""))
			until(minute(1).Add(30 * time.Second))
		},
		ask: explain.Question{Job: "j"},
		want: `
late
Item 0 was triggered at 00:01:03 and began at 00:01:08 on host 10.0.0.1, 5s late.
It waited for its run before, which ended at 00:01:08.
It succeeded at 00:01:16, after 8s.
`,
		chinese: `
late
分片 0 于 00:01:03 被触发，于 00:01:08 才在主机 10.0.0.1 上开始，延迟 5 秒。
它等待上一次运行，其于 00:01:08 结束。
它于 00:01:16 成功，耗时 8 秒。
`,
	},
	{
		name: "not yet due",
		play: func(t *testing.T, s *stage) {
			s.start(1, job(definition("j", "0 0/5 * * * ?", 2), sleeper(time.Second)))
			until(minute(1).Add(30 * time.Second))
		},
		ask: explain.Question{Job: "j"},
		want: `
not yet due
The job has not been due up to 2000-01-01 00:01:30; by "0 0/5 * * * ?" GMT the next instant is 2000-01-01 00:05:00.
It came to host 10.0.0.1 at 2000-01-01 00:00:00.
`,
	},
	{
		name: "the history does not reach back",
		play: func(t *testing.T, s *stage) {
			s.start(1, job(definition("j", "0 * * * * ?", 2), sleeper(time.Second)))
			until(minute(10).Add(30 * time.Second))
			s.cluster.mu.Lock()
			defer s.cluster.mu.Unlock()
			n := slices.IndexFunc(s.events, func(e event.Event) bool { return e.Time.After(minute(5)) })
			s.events = s.events[n:]
		},
		ask: explain.Question{Job: "j", At: minute(2)},
		want: `
unknown
The histories have no fire of 2000-01-01 00:02:00, and do not say which schedule the job had; they begin at 2000-01-01 00:05:01.
`,
	},
	{
		name: "a session in doubt for a while",
		play: func(t *testing.T, s *stage) {
			s.start(1, job(definition("j", "0 * * * * ?", 2), sleeper(time.Second)))
			until(minute(1).Add(55 * time.Second))
			s.doubt(1, registry.TrustSuspect)
			until(minute(2).Add(7 * time.Second))
			s.doubt(1, registry.TrustLive)
			until(minute(2).Add(50 * time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(2)},
		want: `
late
Items 0-1 were due at 00:02:00 and began at 00:02:07 on host 10.0.0.1, 7s late.
The session of host 10.0.0.1 was in doubt from 00:01:55 to 00:02:07: the registry did not answer, and nothing began there.
They succeeded, the last at 00:02:08, after at most 1s.
`,
	},
	{
		name: "killed",
		play: func(t *testing.T, s *stage) {
			n := s.start(1, job(definition("j", "0 * * * * ?", 2), &guest{digest: "k", run: func(ctx context.Context, inv *abi.Invocation) abi.Result {
				if inv.Context.ShardingItem == 0 {
					return ok
				}
				<-ctx.Done()
				return abi.Result{Outcome: abi.OutcomeCancelled, Message: context.Cause(ctx).Error()}
			}}))
			until(minute(1).Add(20 * time.Second))
			_, err := n.operator().Kill(t.Context(), "j", admin.KillOptions{Item: -1, By: "erin", Grace: time.Second}, nil)
			s.does(err, history.Change{Who: "erin", From: "10.9.9.9", What: "kill", Job: "j", Item: number(1), Why: "it hangs"})
			until(minute(1).Add(50 * time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(1)},
		want: `
killed
Item 1 was due at 00:01:00 and began in time on host 10.0.0.1.
It ended at 00:01:21: an operator killed it (erin) at 2000-01-01T00:01:20Z; its guest was stopped by force.
erin did "kill" of item 1 at 00:01:20, from 10.9.9.9: it hangs.
Item 0 was due at 00:01:00 and began in time on host 10.0.0.1.
It succeeded at 00:01:00, after 0s.
`,
		chinese: `
killed
分片 1 应于 00:01:00 执行，并按时在主机 10.0.0.1 上开始。
它于 00:01:21 结束：操作者（erin）于 00:01:20 终止了它；其客体被强制停止。
00:01:20 对分片 1 执行了“终止运行”，操作者：erin，来源：10.9.9.9，原因：“it hangs”。
分片 0 应于 00:01:00 执行，并按时在主机 10.0.0.1 上开始。
它于 00:01:00 成功，耗时 0 秒。
`,
	},
	{
		name: "held back",
		play: func(t *testing.T, s *stage) {
			d := definition("j", "0 * * * * ?", 1)
			d.Failover = true
			d.Props["wasm.maxHostDeaths"] = "2"
			s.start(1, job(d, sleeper(50*time.Second)))
			until(minute(1).Add(5 * time.Second))
			s.start(2, job(d, sleeper(50*time.Second)))
			time.Sleep(2 * time.Second)
			s.die(1)
			time.Sleep(5 * time.Second)
			s.start(3, job(d, sleeper(50*time.Second)))
			time.Sleep(5 * time.Second)
			s.die(2)
			until(minute(2).Add(20 * time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(1)},
		want: `
held
Item 0 was due at 00:01:00 and began in time on host 10.0.0.1.
Host 10.0.0.1 had it; the last that it reported is of 00:01:05.
The session of host 10.0.0.1 had ended: host 10.0.0.2 saw that at 00:01:07.
Failover gave it to host 10.0.0.2, where it began at 00:01:07.
Host 10.0.0.2 had it; the last that it reported is of 00:01:12.
The session of host 10.0.0.2 had ended: host 10.0.0.3 saw that at 00:01:17.
Host 10.0.0.3 closed the run of host 10.0.0.2 at 00:01:17: the item is held back since 2000-01-01T00:01:17Z: 2 hosts in a row died in its runs (10.0.0.1@-@1-00000001, 10.0.0.2@-@1-00000001); wasmjob job release j --item 0 lets it run again.
`,
	},
	{
		name: "an item runs elsewhere than before",
		play: func(t *testing.T, s *stage) {
			d := definition("j", "0 * * * * ?", 2)
			s.start(1, job(d, sleeper(time.Second)))
			until(minute(1).Add(30 * time.Second))
			s.start(2, job(d, sleeper(time.Second)))
			until(minute(2).Add(30 * time.Second))
		},
		ask: explain.Question{Job: "j", Item: number(0)},
		want: `
ran
Item 0 was due at 00:02:00 and began in time on host 10.0.0.2.
The run before, at 00:01:00, was on host 10.0.0.1.
Host 10.0.0.1, the leader, sharded the items at 00:01:30: instances changed.
Host 10.0.0.2 got it at 00:01:30.
It succeeded at 00:02:01, after 1s.
`,
	}, {
		name: "a listener before the items",
		play: func(t *testing.T, s *stage) {
			g := sleeper(time.Second)
			g.listeners = map[string]func(*abi.Invocation) abi.Result{abi.ExportBefore: func(*abi.Invocation) abi.Result {
				time.Sleep(5 * time.Second)
				return ok
			}}
			d := definition("j", "0 * * * * ?", 2)
			d.JobListenerTypes = []string{"x"}
			s.start(1, job(d, g))
			until(minute(1).Add(30 * time.Second))
		},
		ask: explain.Question{Job: "j"},
		want: `
late
Items 0-1 were due at 00:01:00 and began at 00:01:05 on host 10.0.0.1, 5s late.
On host 10.0.0.1 they waited 5s for the listeners that run before the items.
They succeeded, the last at 00:01:06, after at most 1s.
`,
	},
	{
		name: "a host that loses its session while an item runs",
		play: func(t *testing.T, s *stage) {
			d := definition("j", "0 * * * * ?", 2)
			d.Failover = true
			s.start(1, job(d, sleeper(20*time.Second)))
			s.start(2, job(d, sleeper(20*time.Second)))
			until(minute(2).Add(4 * time.Second))
			s.doubt(1, registry.TrustSuspect)
			until(minute(2).Add(14 * time.Second))
			s.doubt(1, registry.TrustLost)
			until(minute(3).Add(-time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(2), Item: number(1)},
		want: `
late
Item 1 was due at 00:02:00 and began in time on host 10.0.0.1.
Host 10.0.0.1, which had it, got no answer from the registry: its session was in doubt from 00:02:04 on, and nothing began there.
The session of host 10.0.0.1 had ended: host 10.0.0.2 saw that at 00:02:14.
Failover gave it to host 10.0.0.2, where it began at 00:02:14.
It succeeded at 00:02:34, after 20s.
`,
	},
	{
		name: "removed",
		play: func(t *testing.T, s *stage) {
			n := s.start(1, job(definition("j", "0 * * * * ?", 1), sleeper(20*time.Second)))
			until(minute(1).Add(5 * time.Second))
			s.does(n.operator().Remove(t.Context(), "j", false), history.Change{Who: "frank", From: "10.9.9.9", What: "remove", Job: "j"})
			until(minute(2).Add(50 * time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(2)},
		want: `
no host
Item 0 was due at 00:02:00 and did not run: none of the hosts whose histories there are had the job then.
The last that had the job before was host 10.0.0.1, until 00:01:05: removed from the registry; 'wasmjob job restore j' brings it back.
frank did "remove" of the job at 00:01:05, from 10.9.9.9.
`,
		chinese: `
no host
分片 0 应于 00:02:00 执行，但没有运行：在有历史的主机中，当时没有一台拥有该作业。
此前最后拥有该作业的是主机 10.0.0.1，直到 00:01:05：已从注册中心移除；用“wasmjob job restore j”可恢复。
00:01:05 对作业执行了“移除”，操作者：frank，来源：10.9.9.9。
`,
	},
	{
		name: "a clock that is behind",
		play: func(t *testing.T, s *stage) {
			config := s.config
			s.config = func(c *engine.Config) {
				config(c)
				c.Now = func() time.Time { return time.Now().Add(-20 * time.Second) }
			}
			s.start(1, job(definition("j", "0 * * * * ?", 1), sleeper(time.Second)))
			until(minute(3).Add(50 * time.Second))
		},
		ask: explain.Question{Job: "j", At: minute(3)},
		want: `
ran
Item 0 was due at 00:03:00 and began in time on host 10.0.0.1.
Host 10.0.0.1 reported at 1999-12-31 23:59:41: this host's clock is 20.001s behind the registry's, and may be 5s: what it begins is late, and nothing begins before its clock has come to what was begun.
It succeeded at 00:03:01, after 1s.
`,
	},
}
