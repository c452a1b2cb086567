package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// materials writes the bill of materials of a built program: the modules that are linked
// into it, as it says itself, in CycloneDX's JSON.
func (m *made) materials(t target, file string) (err error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	sum, _, err := sumOf(file)
	if err != nil {
		return err
	}
	bom := cyclonedx.NewBOM()
	main := golang(info.Main.Path, m.version, "")
	main.Type = cyclonedx.ComponentTypeApplication
	main.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: sum}} // of the program
	bom.Metadata = &cyclonedx.Metadata{Timestamp: m.time.Format("2006-01-02T15:04:05Z"), Component: &main}
	list := []cyclonedx.Component{golang("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	needs := []string{list[0].BOMRef}
	for _, d := range info.Deps {
		version, sum := d.Version, d.Sum
		if d.Replace != nil {
			version, sum = d.Replace.Version, d.Replace.Sum
		}
		if version == "(devel)" { // of this tree
			version = m.version
		}
		c := golang(d.Path, version, sum)
		list, needs = append(list, c), append(needs, c.BOMRef)
	}
	bom.Components = &list
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &needs}}
	f, err := os.Create(filepath.Join(m.out, m.stem(t)+".cdx.json"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// golang is a module as a component. Its sum is that of go.sum, a SHA-256.
func golang(path, version, sum string) cyclonedx.Component {
	purl := fmt.Sprintf("pkg:golang/%s@%s", path, strings.ReplaceAll(version, "+", "%2B"))
	c := cyclonedx.Component{BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl}
	if encoded, ok := strings.CutPrefix(sum, "h1:"); ok {
		if raw, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}
		}
	}
	return c
}
