package harness

import (
	"context"
	"slices"
	"strconv"
	"strings"
)

// Counters maps a metric's name with labels to its value.
type Counters map[string]float64

// Scrape reads metrics in the Prometheus text format from a URL.
func Scrape(ctx context.Context, url string) (Counters, error) {
	text, err := Get(ctx, url)
	if err != nil {
		return nil, err
	}
	return ParseCounters(string(text)), nil
}

// ParseCounters parses a page of metrics. It skips lines without a metric.
func ParseCounters(text string) Counters {
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
