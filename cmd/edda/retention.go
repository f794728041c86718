package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"edda"
	"edda/manifests"
	"edda/retention"
	"edda/saga"
	"edda/store"
)

// retentionConfig says how long things are kept; 0 is for ever. Claims have
// effects.retention, and a saga its own retention: in the manifest.
type retentionConfig struct {
	Instances   time.Duration `koanf:"instances"` // finished ones
	History     time.Duration `koanf:"history"`
	DeadLetters time.Duration `koanf:"dead_letters"`
	Audit       time.Duration `koanf:"audit"`
	Manifests   time.Duration `koanf:"manifests"` // that nothing needs
}

const retentionDay = 24 * time.Hour

// retentionDefaults keep what people ask about for as long as they ask.
func retentionDefaults() retentionConfig {
	return retentionConfig{
		Instances: 30 * retentionDay, History: 30 * retentionDay, DeadLetters: 90 * retentionDay, Audit: 365 * retentionDay,
		Manifests: 90 * retentionDay,
	}
}

func (c retentionConfig) validate() error {
	for _, s := range []struct {
		name string
		d    time.Duration
	}{{"instances", c.Instances}, {"history", c.History}, {"dead_letters", c.DeadLetters}, {"audit", c.Audit}, {"manifests", c.Manifests}} {
		if s.d != 0 && s.d < minRetention {
			return usagef("retention.%s %s: want %s or more, or 0 to keep it for ever", s.name, s.d, minRetention)
		}
	}
	return nil
}

// retentionOf is what a store is kept by: the configuration, and what the newest
// text of each saga that the store knows says itself.
func (c config) retentionOf(db *store.DB) (retention.Settings, error) {
	kept, err := db.Manifests()
	if err != nil {
		return retention.Settings{}, fmt.Errorf("read the kept manifests: %w", err)
	}
	own := ownRetention(kept)
	return retention.Settings{
		History: c.Retention.History, DeadLetters: c.Retention.DeadLetters, Audit: c.Retention.Audit, Claims: c.Effects.Retention,
		Manifests: c.Retention.Manifests,
		Instances: func(saga string, status edda.Status) time.Duration {
			if d, ok := own[saga].of(status); ok {
				return max(d, 1) // 0s in a manifest is at once, not for ever
			}
			return c.Retention.Instances
		},
	}, nil
}

// retentionSettings are those of the configuration, with what runs now.
func (p *process) retentionSettings() (retention.Settings, error) {
	s, err := p.settings.retentionOf(p.db)
	s.Loaded = loadedIn(usedPrograms{p}.Set())
	return s, err
}

// loadedIn tells which texts instances run on.
func loadedIn(set *saga.Set) func(edda.Manifest) bool {
	loaded := map[text]bool{}
	if set != nil {
		for _, p := range set.Programs() {
			loaded[text{p.Saga(), p.Version(), p.Hash()}] = true
		}
	}
	return func(m edda.Manifest) bool { return loaded[text{m.Saga, m.Version, m.Hash}] }
}

// sagaRetention is the retention: of one manifest; nil where it says nothing.
type sagaRetention struct{ done, failed *manifests.Duration }

func (s sagaRetention) of(status edda.Status) (time.Duration, bool) {
	d := s.failed // undone ones, too
	if status == edda.StatusDone {
		d = s.done
	}
	if d == nil {
		return 0, false
	}
	return d.D, true
}

func ownRetention(kept []edda.Manifest) map[string]sagaRetention {
	kept = slices.SortedFunc(slices.Values(kept), func(a, b edda.Manifest) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), a.Loaded.Compare(b.Loaded))
	})
	own := map[string]sagaRetention{}
	for _, k := range kept {
		file, problems := manifests.Parse(k.Saga, []byte(k.Text))
		if problems.Failed() {
			continue // an older edda's text: it cannot say less than the configuration
		}
		for _, s := range file.Sagas {
			own[k.Saga] = sagaRetention{s.Done, s.Failed}
		}
	}
	return own
}
