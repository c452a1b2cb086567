package api

import (
	"bytes"
	"context"
	"fmt"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/wasmjob/wasmjob/host/event/operation"
)

// backups registers the backup of the registry.
func (a *API) backups() {
	o := ofCatalogue(operation.Backup, "getBackup", func(o *huma.Operation) {
		o.Responses = map[string]*huma.Response{"200": {Description: "A file as 'wasmjob registry backup create' makes it.", Content: map[string]*huma.MediaType{"application/gzip": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}}}
	}, a.large)
	register(a, o, func(ctx context.Context, in *Why) (*huma.StreamResponse, error) {
		ctx, cancel := context.WithTimeout(ctx, operationTimeout)
		defer cancel()
		b, err := a.o.Service.Backup(ctx, in.Reason)
		if err != nil {
			return nil, problem(err)
		}
		var file bytes.Buffer
		if err := b.Write(&file); err != nil {
			return nil, problem(fmt.Errorf("write the backup: %w", err))
		}
		return &huma.StreamResponse{Body: func(c huma.Context) {
			_, w := humago.Unwrap(c)
			w.Header().Set("Content-Type", "application/gzip")
			_, _ = w.Write(file.Bytes()) // an error of the connection is the client's to notice
		}}, nil
	})
}
