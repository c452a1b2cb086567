package program

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/config/ownership"
)

// owned is a file or directory that a host trusts, with the setting that names it.
type owned struct {
	setting, name string
	kind          ownership.Kind
}

// owned returns those that the host reads at its start. Files that it reads again when they change (users, grants,
// alerts, the certificate of the admin address), the token and the cache are checked where they are read.
// docs/security.md lists all.
func (l *loaded) owned() []owned {
	list := []owned{
		{"data", l.Data, ownership.Data},
		{"historyCredentialsFile", l.HistoryCredentialsFile, ownership.Secret},
	}
	if z := l.ZooKeeper; l.Registry == registryZooKeeper {
		list = append(list,
			owned{"zkCredentialsFile", z.CredentialsFile, ownership.Secret},
			owned{"zkTlsCa", z.CAFile, ownership.Secret},
			owned{"zkTlsCert", z.CertFile, ownership.Secret},
			owned{"zkTlsKey", z.KeyFile, ownership.Secret},
		)
	}
	return list
}

// wireOwners refuses files that another user could change.
func (s *system) wireOwners(context.Context) error {
	return trusted(ownership.Self(), s.loaded.owned())
}

// trusted checks the owners and modes of the files. It ignores missing files.
func trusted(u ownership.User, list []owned) error {
	var problems []error
	for _, f := range list {
		if f.name == "" {
			continue
		}
		if err := u.Path(f.name, f.kind); err != nil && !errors.Is(err, fs.ErrNotExist) {
			problems = append(problems, fmt.Errorf("%s: %w", f.setting, err))
		}
	}
	if len(problems) > 0 {
		return command.Usage(errors.Join(problems...))
	}
	return nil
}
