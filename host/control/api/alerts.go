package api

import (
	"context"
	"net/http"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/event/operation"
)

type silenceInput struct {
	Body struct {
		Jobs   string   `json:"jobs" doc:"A pattern of job names, such as etl-*. * is also for alerts of no job."`
		Labels string   `json:"labels,omitempty" maxLength:"4000" doc:"Conditions for the labels of jobs, team=billing,tier!=test; any if it is missing."`
		Rules  []string `json:"rules,omitempty" doc:"The rules that are meant; all rules if it is missing."`
		For    string   `json:"for" doc:"How long, from 1m to 90d: 2h, 7d."`
		Why    string   `json:"why,omitempty" doc:"Why, for those who look at the silences."`
	}
}

type silencePath struct {
	ID string `path:"id" doc:"The id of the silence."`
	Why
}

type testInput struct {
	Why
	Body struct {
		Route string `json:"route,omitempty" doc:"The name of the route; all routes if it is missing."`
	}
}

// alerting shows alerts, and silences them.
func (a *API) alerting() {
	s := a.o.Service.Alerting()
	look(a, "/v1/alerts", "listAlerts", "look", "Alerts and silences", func(ctx context.Context, _ *none) (*service.Alerts, error) {
		return s.List(ctx)
	})
	silence := ofCatalogue(operation.Silence, "silenceAlerts", answers(http.StatusConflict))
	register(a, silence, func(ctx context.Context, in *silenceInput) (*body[*alert.Silence], error) {
		ctx, cancel := context.WithTimeout(ctx, operationTimeout)
		defer cancel()
		made, err := s.Silence(ctx, service.WantedSilence{Jobs: in.Body.Jobs, Labels: in.Body.Labels, Rules: in.Body.Rules, For: in.Body.For, Why: in.Body.Why})
		if err != nil {
			return nil, problem(err)
		}
		return &body[*alert.Silence]{made}, nil
	})
	act(a, operation.Unsilence, "unsilenceAlerts", func(ctx context.Context, in *silencePath) error {
		return s.Unsilence(ctx, in.ID, in.Reason)
	})
	test := ofCatalogue(operation.TestAlerts, "testAlerts", answers(http.StatusConflict))
	register(a, test, func(ctx context.Context, in *testInput) (*body[[]alert.Tried], error) {
		ctx, cancel := context.WithTimeout(ctx, operationTimeout)
		defer cancel()
		tried, err := s.Test(ctx, in.Body.Route, in.Reason)
		if err != nil {
			return nil, problem(err)
		}
		return &body[[]alert.Tried]{tried}, nil
	})
}
