package calendar

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"sync"
	"time"
)

// Release is the release of the IANA time zone database that the binary has.
const Release = "2025c"

// The zone files of [Release], as Go's lib/time/zoneinfo.zip of that release has them. They are
// replaced only on purpose, together with Release and an entry in the changelog.
//
//go:embed zoneinfo.zip
var zoneinfo []byte

// zones has a loader for each zone, which parses its file once.
var zones = sync.OnceValue(func() map[string]func() (*time.Location, error) {
	archive, err := zip.NewReader(bytes.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		panic("calendar: zoneinfo.zip: " + err.Error())
	}
	out := make(map[string]func() (*time.Location, error), len(archive.File))
	for _, f := range archive.File {
		if !f.FileInfo().IsDir() {
			out[f.Name] = sync.OnceValues(func() (*time.Location, error) { return load(f) })
		}
	}
	return out
})

func load(f *zip.File) (*time.Location, error) {
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("zone %s: %w", f.Name, err)
	}
	defer r.Close() //nolint:errcheck // it reads memory
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("zone %s: %w", f.Name, err)
	}
	return time.LoadLocationFromTZData(f.Name, data)
}

// maxShown bounds how much of a wrong text an error repeats.
const maxShown = 40

// Zone returns the zone of an IANA name such as Europe/Brussels, by the data of [Release] and never
// by the host's. The host's own zone has no name here.
func Zone(name string) (*time.Location, error) {
	if name == "UTC" {
		return time.UTC, nil
	}
	load := zones()[name]
	if load == nil {
		return nil, fmt.Errorf("%.*q is no time zone: write it as in Europe/Brussels", maxShown, name)
	}
	return load()
}
