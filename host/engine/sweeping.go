package engine

import (
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/admin/cleanup"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// sweeping looks for marks that no host owns.
type sweeping struct {
	job     *access
	items   *items
	janitor bool      // as of the last sweep
	at      time.Time // when to look; zero: not yet
	waits   time.Time // since when it is due
}

// due reports whether to look now for unowned marks.
func (s *sweeping) due(now moment) bool {
	return s.job.member.View.IsJanitor() != s.janitor || (!s.at.IsZero() && !now.Before(s.at))
}

// since is since when it is due, which it is now.
func (s *sweeping) since(now moment) time.Time {
	if s.waits.IsZero() {
		s.waits = now.Time
	}
	return s.waits
}

// sweep removes unowned marks: the janitor does at the slow
// reconcile interval, and when it has become that; any host does that a mark
// stands in the way of. keys says that keys of limits or rates without a user are removed, too.
func (s *sweeping) sweep(now moment, keys bool) {
	j := s.job
	s.waits = time.Time{}
	if janitor := j.member.View.IsJanitor(); janitor != s.janitor {
		s.janitor = janitor
		var why reason.Reason
		if !janitor {
			why = reason.New(reason.OtherJanitor)
		}
		j.Emit(event.Event{Kind: event.Janitor}.Why(why))
		if janitor && s.at.IsZero() {
			s.at = now.Time
		}
	}
	if s.at.IsZero() || now.Before(s.at) {
		return
	}
	var retired []string
	swept, err := cleanup.Sweep(j.work, j.member.Registry, j.member.View, now.wall)
	at := j.member.View.Clock // the registry's
	if at.IsZero() {
		at = now.wall
	}
	if err == nil && s.janitor && keys {
		_, err = cleanup.Keys(j.work, j.member.Registry, j.member.Layout.Namespace, time.UnixMilli(j.host.registryTime(now).UnixMilli()))
	}
	if keep := j.host.cfg.KeepServers; err == nil && s.janitor && keep > 0 {
		retired, err = cleanup.RetireServers(j.work, j.member.Registry, j.member.Layout, at, keep)
	}
	s.at = time.Time{}
	if minutes := j.member.View.Config.ReconcileIntervalMinutes; minutes > 0 && s.janitor {
		s.at = now.Add(time.Duration(minutes) * time.Minute)
	}
	if swept.JavaLives {
		s.at = soonest(s.at, now.Add(longestRecoverPause))
	}
	if err != nil {
		if j.setback(now, "sweeping stale marks", err) {
			s.at = soonest(now.Add(longestDenial), s.at)
		} else {
			s.at = j.refusal.retryAt
		}
	}
	if len(retired) > 0 {
		j.log.Info("removed servers that had no instance of the job any more", zap.Int("servers", len(retired)), zap.Duration("for", j.host.cfg.KeepServers))
	}
	for _, path := range swept.Nodes {
		j.log.Warn("removed an unowned mark", zap.String("node", path))
	}
	if len(swept.Nodes) > 0 {
		for it := range s.items.allActive() {
			it.held = false // it may have been held by one of them
		}
	}
}
