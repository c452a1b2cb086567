package service

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/access"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/alert/board"
	"github.com/wasmjob/wasmjob/host/history"
)

// Alerts are those that stand in the registry, with the silences.
type Alerts struct {
	// Alerts are those that fire, and those that ended lately.
	Alerts []alert.Alert `json:"alerts"`
	// Silences are those in force.
	Silences []alert.Silence `json:"silences"`
}

// board is that of the alerts.
func (s *Service) board() (*board.Board, error) {
	center := s.o.Session()
	if center == nil {
		return nil, host.ErrNotLive
	}
	return board.Of(center, s.o.Namespace), nil
}

// Alerts are those of the jobs that the principal may see. What is of no job is for those
// who may see all.
func (s *Service) Alerts(ctx context.Context) (*Alerts, error) {
	if err := known(ctx); err != nil {
		return nil, err
	}
	b, err := s.board()
	if err != nil {
		return nil, err
	}
	content, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}
	list := &Alerts{Alerts: []alert.Alert{}, Silences: []alert.Silence{}}
	for _, a := range content.Alerts {
		if access.Require(ctx, access.View, a.Job) == nil {
			list.Alerts = append(list.Alerts, a)
		}
	}
	for _, one := range content.Silences {
		if one.Until.After(time.Now()) && mayPattern(ctx, access.View, one.Jobs) == nil {
			list.Silences = append(list.Silences, one)
		}
	}
	return list, nil
}

// mayPattern asks whether the principal may do something to all jobs of a pattern.
func mayPattern(ctx context.Context, a access.Action, pattern string) error {
	who := access.From(ctx)
	if who.All(a) {
		return nil
	}
	for _, mine := range who.Patterns(a) {
		if mine == pattern {
			return nil
		}
	}
	if strings.ContainsAny(pattern, `*?[\`) {
		return access.Require(ctx, a, "")
	}
	return access.Require(ctx, a, pattern)
}

// Silence keeps alerts from being sent for a while.
func (s *Service) Silence(ctx context.Context, wanted alert.Silence) (*alert.Silence, error) {
	wanted.From = time.Now()
	wanted.By = access.From(ctx).String()
	if field, problem := wanted.Check(); problem != "" {
		return nil, &InputError{"body." + field, problem}
	}
	c := &history.Change{What: "silence alerts", Job: wanted.Jobs, Why: wanted.Why, After: "until " + wanted.Until.UTC().Format(time.RFC3339)}
	err := s.patterned(ctx, c, func(b *board.Board) (err error) {
		wanted, err = b.Silence(ctx, wanted)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &wanted, nil
}

// patterned is change for what is about a pattern of jobs, and about the board.
func (s *Service) patterned(ctx context.Context, c *history.Change, do func(b *board.Board) error) error {
	if err := s.begin(ctx, c, mayPattern(ctx, access.Admin, c.Job)); err != nil {
		return err
	}
	b, err := s.board()
	if err == nil {
		err = do(b)
	}
	s.end(c, err)
	return err
}

// Unsilence ends a silence before its time.
func (s *Service) Unsilence(ctx context.Context, id string, why Reason) error {
	if !alert.IsID(id) {
		return &InputError{"path.id", fmt.Sprintf("found %q, expected the id of a silence: 16 hexadecimal digits", id)}
	}
	all, err := s.Alerts(ctx)
	if err != nil {
		return err
	}
	for _, one := range all.Silences {
		if one.ID == id {
			c := &history.Change{What: "end a silence of alerts", Job: one.Jobs, Why: why, Before: "until " + one.Until.UTC().Format(time.RFC3339)}
			return s.patterned(ctx, c, func(b *board.Board) error { return b.Unsilence(ctx, id) })
		}
	}
	return &NotFoundError{fmt.Sprintf("there is no silence %s", id)}
}
