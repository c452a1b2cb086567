package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/service"
)

type silenceInput struct {
	Body struct {
		Jobs  string   `json:"jobs" doc:"a pattern of jobs; * is also what is of no job"`
		Rules []string `json:"rules,omitempty" doc:"the rules that are meant; none is all"`
		For   string   `json:"for" doc:"how long, from 1m to 90d: 2h, 7d"`
		Why   string   `json:"why,omitempty" doc:"why, for those who look at the silences"`
	}
}

type silencePath struct {
	ID string `path:"id" doc:"the silence's id"`
	Why
}

// alerting shows alerts, and silences them.
func (a *API) alerting() {
	s := a.o.Service
	look(a, "/v1/alerts", "listAlerts", "look", "Alerts and silences", func(ctx context.Context, _ *none) (*service.Alerts, error) {
		return s.Alerts(ctx)
	})
	silence := operation(http.MethodPost, "/v1/silences", "silenceAlerts", "operate", "Keep alerts from being sent for a while", answers(http.StatusConflict))
	huma.Register(a.huma, silence, func(ctx context.Context, in *silenceInput) (*body[*alert.Silence], error) {
		ctx, cancel := context.WithTimeout(ctx, operationTimeout)
		defer cancel()
		d, err := alert.ParseDuration(in.Body.For)
		if err != nil {
			return nil, problem(&service.InputError{Where: "body.for", Problem: fmt.Sprintf("found %q, expected a duration such as 2h or 7d", in.Body.For)})
		}
		wanted := alert.Silence{Jobs: in.Body.Jobs, Until: time.Now().Add(d), Why: in.Body.Why}
		for _, r := range in.Body.Rules {
			wanted.Rules = append(wanted.Rules, alert.Rule(r))
		}
		made, err := s.Silence(ctx, wanted)
		if err != nil {
			return nil, problem(err)
		}
		return &body[*alert.Silence]{made}, nil
	})
	act(a, http.MethodDelete, "/v1/silences/{id}", "unsilenceAlerts", "End a silence before its time", func(ctx context.Context, in *silencePath) error {
		return s.Unsilence(ctx, in.ID, in.Reason)
	})
}
