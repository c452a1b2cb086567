package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/alert/store"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// problem is an error as the API answers it.
func problem(err error) error {
	var status huma.StatusError
	if errors.As(err, &status) {
		return err
	}
	var stale *admin.StaleError
	if errors.As(err, &stale) {
		return staleProblem(stale)
	}
	var unfinished *service.UnfinishedError
	if errors.As(err, &unfinished) {
		status := http.StatusGatewayTimeout
		return &huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: "not done within " + operationTimeout.String() + ": " + err.Error()}
	}
	answer := &huma.ErrorModel{Detail: err.Error(), Errors: parts(err)}
	if len(answer.Errors) > 0 {
		answer.Status = http.StatusUnprocessableEntity
	} else {
		answer.Status = statusOf(err)
	}
	if answer.Status == http.StatusGatewayTimeout {
		answer.Detail = "not done within " + operationTimeout.String() + ", it may still take effect: " + err.Error()
	}
	answer.Title = http.StatusText(answer.Status)
	return answer
}

// statusOf is the status of an error that is not about a part of the request.
func statusOf(err error) int {
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	var (
		gone   *service.NotFoundError
		silent *service.SilentError
		busy   *service.BusyError
		not    *service.ConflictError
	)
	switch {
	case errors.As(err, &gone), is(engine.ErrNoJob, admin.ErrNoTarget, store.ErrNoSilence):
		return http.StatusNotFound
	case errors.As(err, &busy), errors.As(err, &silent), is(engine.ErrNotLive, engine.ErrDraining, cluster.ErrEnded, history.ErrUnavailable),
		is(registry.ErrSessionLost, registry.ErrSuspect, registry.ErrClosed, registry.ErrUnavailable):
		return http.StatusServiceUnavailable
	case errors.As(err, &not), is(engine.ErrJobRemoved, operate.ErrJavaRuns, operate.ErrNothingRuns, operate.ErrItemRuns, operate.ErrTriggerWaits, operate.ErrQueueFull, operate.ErrNoTriggerArgs, operate.ErrBackfillRuns, operate.ErrNoBackfill, store.ErrTooManySilences):
		return http.StatusConflict
	case is(context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// parts are what an error says about parts of the request.
func parts(err error) (list []*huma.ErrorDetail) {
	var (
		place placedError
		input *service.InputError
		bad   *admin.BadRequestError
		query *cluster.QueryError
	)
	errors.As(err, &place)
	for _, e := range each(err) {
		var f *jobconfig.FieldError
		var arg *tree.ArgError
		switch {
		case errors.As(e, &arg):
			list = append(list, &huma.ErrorDetail{Location: cmp.Or(place.prefix, "body.") + arg.Arg, Message: arg.Problem})
		case errors.As(e, &f):
			list = append(list, &huma.ErrorDetail{Location: place.prefix + f.Field, Message: f.Problem})
		case errors.As(e, &query):
			list = append(list, &huma.ErrorDetail{Location: "query." + query.Name, Message: fmt.Sprintf("found %q, expected %s", query.Found, query.Expected)})
		}
	}
	switch {
	case len(list) > 0:
	case errors.As(err, &input):
		list = append(list, &huma.ErrorDetail{Location: input.Where, Message: input.Problem})
	case errors.As(err, &bad):
		list = append(list, &huma.ErrorDetail{Location: bad.Where, Message: bad.Problem})
	case errors.Is(err, history.ErrFilter):
		name, what, _ := strings.Cut(strings.TrimPrefix(err.Error(), history.ErrFilter.Error()+": "), ": ")
		list = append(list, &huma.ErrorDetail{Location: "query." + strings.TrimSuffix(name, "s"), Message: what})
	}
	return list
}

// worded makes huma's problems with parameters say what was found and what is expected.
func worded(_ huma.Context, _ string, v any) (any, error) {
	p, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	for _, e := range p.Errors {
		expected := ""
		switch {
		case strings.HasPrefix(e.Message, "invalid date/time"):
			expected = "a time such as 2026-11-23T03:00:00Z"
		case e.Message == "invalid integer":
			expected = "a whole number"
		case e.Message == "invalid boolean":
			expected = "true or false"
		default:
			continue
		}
		e.Message = fmt.Sprintf("found %q, expected %s", words.Clip(fmt.Sprint(e.Value)), expected)
	}
	return v, nil
}

// each are the errors that an error joins, also by errors that it joins, or itself.
func each(err error) (list []error) {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		list = append(list, each(e)...)
	}
	return list
}

// placedError says where in a request the fields are that an error names.
type placedError struct {
	prefix string
	error
}

func (e placedError) Unwrap() error { return e.error }

// placed places the fields that an error names; nil stays nil.
func placed(prefix string, err error) error {
	if err == nil {
		return nil
	}
	return placedError{prefix, err}
}

// conflict is a problem with what there is in place of what was expected.
type conflict struct {
	huma.ErrorModel
	Now *admin.JobConfig `json:"now" doc:"The configuration that there is now."`
}

func staleProblem(e *admin.StaleError) error {
	status := http.StatusPreconditionFailed
	p := &conflict{huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: e.Error()}, e.Now}
	return huma.ErrorWithHeaders(p, http.Header{"Etag": {etag(e.Now.Version)}})
}

// WriteProblem answers a request that is not carried out.
func WriteProblem(w http.ResponseWriter, p *huma.ErrorModel) {
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = huma.DefaultJSONFormat.Marshal(w, p) // an error of the connection is the client's to notice
}

// writeError answers with an error.
func writeError(w http.ResponseWriter, err error) {
	var no *auth.Problem
	if errors.As(err, &no) {
		no.ServeHTTP(w, nil)
		return
	}
	answer := &huma.ErrorModel{Status: http.StatusInternalServerError, Detail: fmt.Sprint(err)}
	errors.As(problem(err), &answer)
	WriteProblem(w, answer)
}
