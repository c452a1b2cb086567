package main

import (
	"archive/tar"
	"archive/zip"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// entry is a file of an archive, by its name there.
type entry struct {
	name, source string
	mode         int64
}

// shared are the files beside the program, in the order of their names.
func (m *made) shared(t target) (list []entry, err error) {
	from := func(dir, pattern string) error {
		names, err := filepath.Glob(filepath.Join(m.files, dir, pattern))
		for _, n := range names {
			list = append(list, entry{path.Join(dir, filepath.Base(n)), n, 0o644})
		}
		return err
	}
	list = append(list, entry{"LICENSE", filepath.Join(m.tree, "LICENSE"), 0o644}, entry{"README.md", filepath.Join(m.tree, "README.md"), 0o644})
	if t.system == "windows" {
		return list, nil
	}
	return list, errors.Join(from("completions", "*"), from("man", "*.1"))
}

// archive writes the target's archive: a folder with the program and what goes with it.
func (m *made) archive(t target, program string) (err error) {
	list, err := m.shared(t)
	if err != nil {
		return err
	}
	list = append(list, entry{t.programName(), program, 0o755})
	ending := ".tar.gz"
	if t.system == "windows" {
		ending = ".zip"
	}
	f, err := os.Create(filepath.Join(m.out, m.stem(t)+ending))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if t.system == "windows" {
		return m.zip(f, m.stem(t), list)
	}
	return m.tar(f, m.stem(t), list)
}

// tar writes an archive whose bytes depend on the files alone.
func (m *made) tar(w io.Writer, folder string, list []entry) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	for _, e := range list {
		data, err := os.ReadFile(e.source)
		if err != nil {
			return err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(folder, e.name), Mode: e.mode, Size: int64(len(data)), ModTime: m.time, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(data); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

func (m *made) zip(w io.Writer, folder string, list []entry) error {
	archive := zip.NewWriter(w)
	archive.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	for _, e := range list {
		data, err := os.ReadFile(e.source)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: path.Join(folder, e.name), Method: zip.Deflate, Modified: m.time}
		header.SetMode(os.FileMode(e.mode))
		f, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := f.Write(data); err != nil {
			return err
		}
	}
	return archive.Close()
}

// formula writes the Homebrew formula, if the release has what it installs.
func (m *made) formula() error {
	var b strings.Builder
	fmt.Fprintf(&b, `class Wasmjob < Formula
  desc "Distributed cron host whose jobs are WebAssembly modules"
  homepage "https://github.com/wasmjob/wasmjob"
  version %q
  license "Apache-2.0"
`, m.number)
	for _, system := range [][2]string{{"darwin", "macos"}, {"linux", "linux"}} {
		fmt.Fprintf(&b, "\n  on_%s do\n", system[1])
		for _, processor := range [][2]string{{"arm64", "arm"}, {"amd64", "intel"}} {
			t := target{system[0], processor[0]}
			name := m.stem(t) + ".tar.gz"
			sum, _, err := sumOf(filepath.Join(m.out, name))
			if errors.Is(err, os.ErrNotExist) {
				return nil // not all targets were wanted
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "    on_%s do\n      url \"https://github.com/wasmjob/wasmjob/releases/download/%s/%s\"\n      sha256 %q\n    end\n", processor[1], m.version, name, sum)
		}
		b.WriteString("  end\n")
	}
	b.WriteString(`
  def install
    bin.install "wasmjob"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/wasmjob.bash" => "wasmjob"
    zsh_completion.install "completions/_wasmjob"
    fish_completion.install "completions/wasmjob.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/wasmjob version")
  end
end
`)
	return os.WriteFile(filepath.Join(m.out, "wasmjob.rb"), []byte(b.String()), 0o644)
}

// image writes the build file of an image from the archives: the last stage of
// deploy/Dockerfile, with the program of an archive in place of one that is compiled.
func (m *made) image() error {
	const (
		compiled = "COPY --from=build /out/wasmjob /wasmjob\n"
		folders  = "COPY --from=build --chown=65532:65532 /dirs/ /\n"
	)
	data, err := os.ReadFile(filepath.Join(m.tree, "deploy", "Dockerfile"))
	if err != nil {
		return err
	}
	text := string(data)
	i := strings.LastIndex(text, "\nFROM ")
	if i < 0 || strings.Count(text[i:], compiled) != 1 || strings.Count(text[i:], folders) != 1 {
		return errors.New("deploy/Dockerfile: the last stage does not copy the program and its directories as expected")
	}
	last := strings.NewReplacer(
		compiled, "ARG TARGETARCH\nCOPY --from=archive /wasmjob_"+m.number+"_linux_${TARGETARCH}/wasmjob /wasmjob\n",
		folders, "COPY --from=archive --chown=65532:65532 --chmod=0700 /empty /cache\nCOPY --from=archive --chown=65532:65532 --chmod=0700 /empty /data\nCOPY --from=archive --chown=65532:65532 --chmod=0755 /empty /plugins\n",
	).Replace(text[i:])
	head := `# syntax=docker/dockerfile:1
# The image of wasmjob ` + m.version + `, from the archives of the release:
#
#   docker buildx build --platform linux/amd64,linux/arm64 -t wasmjob:` + m.number + ` .

FROM scratch AS archive
ARG TARGETARCH
ADD wasmjob_` + m.number + `_linux_${TARGETARCH}.tar.gz /
WORKDIR /empty
`
	return os.WriteFile(filepath.Join(m.out, "Dockerfile"), []byte(head+last), 0o644)
}
