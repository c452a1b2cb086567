package program

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/config/ownership"
)

// owned is a file, or a directory, that a host trusts, and what names it.
type owned struct {
	setting, name string
	kind          ownership.Kind
}

// owned are those that the host reads at its start. What is read again when it changes (users, grants, alerts, the
// admin address' certificate), the token and the cache are checked where they are read. docs/security.md has all.
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

// wireOwners refuses what another user could change.
func (s *system) wireOwners(context.Context) error {
	return trusted(ownership.Self(), s.loaded.owned())
}

// trusted says what is wrong with the owners and modes of the files. Those that are not there are not looked at.
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
