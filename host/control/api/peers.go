package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/history"
)

// Peers answers what other hosts ask this one, each request by its signature.
func (a *API) Peers() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+cluster.PathDelta, a.peer(func(r *http.Request) (any, error) {
		since, _ := strconv.ParseUint(r.URL.Query().Get("since"), 10, 64) // else all
		return a.o.Local.Delta(r.URL.Query().Get("epoch"), since), nil
	}))
	mux.Handle("POST "+cluster.PathStart, a.peer(func(r *http.Request) (any, error) {
		return struct{}{}, a.o.Service.StartHere(r.Context(), r.URL.Query().Get("job"))
	}))
	mux.Handle("POST "+cluster.PathStartAll, a.peer(func(r *http.Request) (any, error) {
		return struct{}{}, a.o.Service.StartHere(r.Context(), "")
	}))
	mux.Handle("GET "+cluster.PathParts, a.peer(func(r *http.Request) (any, error) {
		return cluster.AnswerParts(r.Context(), a.o.Store, r.URL.Query())
	}))
	mux.HandleFunc("GET "+cluster.PathTail, a.tail)
	own(mux, a, cluster.PathFires, a.o.Store.Fires)
	own(mux, a, cluster.PathRuns, a.o.Store.Runs)
	own(mux, a, cluster.PathEvents, a.o.Store.Events)
	own(mux, a, cluster.PathLines, a.o.Store.Lines)
	own(mux, a, cluster.PathChanges, a.o.Store.Changes)
	return mux
}

// own answers from this host's own store.
func own[T any](mux *http.ServeMux, a *API, path string, find func(context.Context, history.Filter) (history.Page[T], error)) {
	mux.Handle("GET "+path, a.peer(func(r *http.Request) (any, error) {
		f, err := cluster.ParseQuery(r.URL.Query())
		if err != nil {
			return nil, err
		}
		return find(r.Context(), f)
	}))
}

// peer answers hosts of the namespace only.
func (a *API) peer(answer func(r *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.o.Verify(r); err != nil {
			WriteProblem(w, &huma.ErrorModel{Status: http.StatusUnauthorized, Detail: err.Error()})
			return
		}
		v, err := answer(r)
		var body []byte
		if err == nil {
			body, err = json.Marshal(v)
		}
		if err != nil {
			writeError(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // an error of the connection is the client's to notice
	})
}

// tail passes the lines of this host on to a peer, as they come.
func (a *API) tail(w http.ResponseWriter, r *http.Request) {
	if err := a.o.Verify(r); err != nil {
		WriteProblem(w, &huma.ErrorModel{Status: http.StatusUnauthorized, Detail: err.Error()})
		return
	}
	f, err := cluster.ParseQuery(r.URL.Query())
	if err != nil {
		writeError(w, err)
		return
	}
	ctx, end := a.until(r.Context())
	defer end()
	s, err := newStream(w, "application/x-ndjson", "")
	if err != nil {
		return
	}
	following := a.o.Tail.Follow(f)
	defer following.Close()
	live := time.NewTicker(stillThere)
	defer live.Stop()
	for err == nil {
		select {
		case l := <-following.Lines():
			l.Lost = following.Lost()
			var data []byte
			if data, err = json.Marshal(l); err == nil {
				err = s.write(append(data, '\n'))
			}
		case <-live.C:
			err = s.write([]byte("\n"))
		case <-ctx.Done():
			return
		}
	}
}
