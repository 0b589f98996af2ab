package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// parts writes which modules the programs are made of, as the programs themselves say
// (CycloneDX, JSON).
func (r *release) parts() ([]string, error) {
	modules := map[string]cdx.Component{}
	goVersion := ""
	for _, program := range programs() {
		info, err := buildinfo.ReadFile(filepath.Join(r.bin, program))
		if err != nil {
			return nil, err
		}
		goVersion = info.GoVersion
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			url := fmt.Sprintf("pkg:golang/%s@%s", m.Path, m.Version)
			modules[url] = cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: url}
		}
	}
	version := strings.TrimPrefix(goVersion, "go")
	std := "pkg:golang/std@" + version
	list := []cdx.Component{{BOMRef: std, Type: cdx.ComponentTypeLibrary, Name: "std", Version: version, PackageURL: std}}
	for _, m := range modules {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b cdx.Component) int { return strings.Compare(a.PackageURL, b.PackageURL) })
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: r.timestamp.UTC().Format("2006-01-02T15:04:05Z"),
		Component: &cdx.Component{BOMRef: "isthmus", Type: cdx.ComponentTypeApplication, Name: "isthmus", Version: r.version},
	}
	bom.Components = &list
	name := fmt.Sprintf("isthmus_%s_%s.sbom.json", r.version, r.arch)
	f, err := os.Create(filepath.Join(r.out, name))
	if err != nil {
		return nil, err
	}
	return []string{name}, errors.Join(cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom), f.Close())
}
