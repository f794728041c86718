// Package scrape reads the metrics of a process in the Prometheus text format.
package scrape

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// most bounds the text of one page of metrics: 16 MiB.
const most = 16 << 20

// Counters maps a metric's name with labels to its value.
type Counters map[string]float64

// Read fetches the metrics from a URL.
func Read(ctx context.Context, url string) (Counters, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s says %s", url, resp.Status)
	}
	return Parse(string(text)), nil
}

// Parse parses a page of metrics. It skips lines without a metric.
func Parse(text string) Counters {
	out := Counters{}
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimSpace(line), "} ")
		if found {
			name += "}"
		} else {
			name, value, _ = strings.Cut(strings.TrimSpace(line), " ")
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			out[name] = n
		}
	}
	return out
}

// Sum adds the counters of a name whose labels contain all the words.
func (c Counters) Sum(name string, words ...string) int {
	n := 0.0
	for key, value := range c {
		labels, found := strings.CutPrefix(key, name)
		if !found || labels != "" && labels[0] != '{' {
			continue
		}
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(labels, w) }) {
			n += value
		}
	}
	return int(n)
}
