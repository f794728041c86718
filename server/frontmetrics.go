package server

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// shardLabel is the label of what one shard measures.
const shardLabel = "shard"

// shardMetrics gathers the metrics of a node: its own, and those of each shard with the label shard.
type shardMetrics struct {
	own prometheus.Gatherer
	f   *Front
}

// Gather implements prometheus.Gatherer. What the node measures itself, such as its memory, is not taken from the shards.
func (g shardMetrics) Gather() ([]*dto.MetricFamily, error) {
	all, err := g.own.Gather()
	own := map[string]bool{}
	for _, family := range all {
		own[family.GetName()] = true
	}
	byName := map[string]*dto.MetricFamily{}
	for i := range g.f.shards {
		s := g.f.shards[i].now.Load()
		if s == nil || s.options.Metrics == nil {
			continue
		}
		families, failed := s.options.Metrics.Gather()
		err = errors.Join(err, failed)
		for _, family := range families {
			name := family.GetName()
			if own[name] {
				continue
			}
			for _, m := range family.Metric {
				label(m, strconv.Itoa(i))
			}
			if first := byName[name]; first != nil {
				first.Metric = append(first.Metric, family.Metric...)
				continue
			}
			byName[name] = family
			all = append(all, family)
		}
	}
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all, err
}

// label adds the label of a shard to a metric that has none.
func label(m *dto.Metric, shard string) {
	name := shardLabel
	for _, l := range m.Label {
		if l.GetName() == name {
			return
		}
	}
	m.Label = append(m.Label, &dto.LabelPair{Name: &name, Value: &shard})
	slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
}
