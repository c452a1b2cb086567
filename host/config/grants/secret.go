package grants

import (
	"bytes"
	"errors"
	"fmt"
	"os"
)

// MaxSecret is the longest secret in bytes.
const MaxSecret = 64 << 10

// Resolve reads a secret, without the line break at the end of its file. The error contains neither the secret
// nor the file's name, because a guest may read it.
func Resolve(s Secret) (string, error) {
	if s.Env != "" {
		value := os.Getenv(s.Env)
		switch {
		case value == "":
			return "", fmt.Errorf("the variable %s of the host is not set, or empty", s.Env)
		case len(value) > MaxSecret:
			return "", fmt.Errorf("the variable %s of the host has more than %d bytes", s.Env, MaxSecret)
		}
		return value, nil
	}
	if s.File == "" {
		return "", errors.New("there is no place that the secret comes from")
	}
	data, err := readFile(s.File)
	if err != nil {
		return "", fmt.Errorf("its file %w", err)
	}
	if line, ended := bytes.CutSuffix(data, []byte("\n")); ended {
		data = bytes.TrimSuffix(line, []byte("\r"))
	}
	switch {
	case len(data) == 0:
		return "", errors.New("its file is empty")
	case len(data) > MaxSecret:
		return "", fmt.Errorf("its file has more than %d bytes", MaxSecret)
	}
	return string(data), nil
}
