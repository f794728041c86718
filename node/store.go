package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"go.uber.org/zap"

	"edda"
	"edda/keyset"
	"edda/node/operator"
	"edda/node/versions"
	"edda/store"
)

// addrFile lies beside a store and names its holder.
const addrFile = "edda.addr"

// Holder is the process that holds a store.
type Holder struct {
	Addr  string     `json:"addr"`
	Store string     `json:"store"` // id of the store
	Shard edda.Shard `json:"shard"` // that the store has; calls about it name the shard
}

// HolderOf returns the last process that held the store in a folder, as it said itself.
func HolderOf(folder string) (Holder, error) {
	var h Holder
	text, err := os.ReadFile(filepath.Join(folder, addrFile))
	if err != nil {
		return h, err
	}
	return h, json.Unmarshal(text, &h)
}

// StoreOptions returns how a command opens a store that no process holds. It keeps the sent
// messages, because the next start may need them.
func (c Config) StoreOptions() (store.Options, error) {
	sealing, err := c.sealing()
	return store.Options{Seal: sealing, KeepSent: func() time.Time { return time.Time{} }}, err
}

// sealing returns the encryption of the store; nil without a keyset.
func (c Config) sealing() (store.AEAD, error) {
	if c.Encryption.Keyset == "" {
		return nil, nil
	}
	return keyset.Open(c.Encryption.Keyset)
}

// open creates the folder and opens the store. Only one process can hold a store.
func (p *process) open() error {
	if err := os.MkdirAll(p.settings.Data, 0o750); err != nil {
		return fmt.Errorf("data folder: %w; choose another --data", err)
	}
	if p.stay == nil {
		if err := ownStore(p.settings.storeDir()); err != nil {
			return err
		}
	}
	sealing, err := p.settings.sealing()
	if err != nil {
		return err
	}
	db, err := p.stay.openStore(p.settings.storeDir(), store.Options{Seal: sealing, KeepSent: p.keepSent(), MaxDeadBytes: p.settings.Dead.MaxBytes, Log: p.log.Named("store"), Observe: observeCommits(p.metrics), Ship: p.stay.ship()})
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	if err := errors.Join(servesAlone(db, p.settings.Tenants), p.takeShare(db.Share())); err != nil {
		return errors.Join(err, db.Close())
	}
	p.db = db
	p.server.Read(db, p.settings.share.Index)
	p.texts = versions.New(db, p.settings.Dev, p.log)
	p.Quarantine = operator.NewQuarantine(db, operator.Options{Publisher: p.publisher, MaxBytes: p.settings.Dead.MaxBytes, Log: p.log, Metrics: p.metrics})
	return p.findRestored()
}

// takeShare has a process that is alone handle the keys that its store has: each other shard has a store of its own. That is
// how the shards of a restored cluster catch up. A store keeps the name of the cluster that founded it, also in another one.
func (p *process) takeShare(share edda.Share) error {
	if p.stay != nil {
		if err := p.settings.sameKeys(share); err != nil {
			return err
		}
	} else if !share.Whole() {
		p.log.Warn("this process handles the keys of its store alone, and other processes have the others", zap.Stringer("store", share))
	}
	p.settings.share = share
	return nil
}

// servesAlone refuses other tenants on a store restored from one tenant's backup, because
// their instances would start a second time without their history.
func servesAlone(db *store.DB, tenants []string) error {
	of := db.Tenant()
	if of == "" || slices.Equal(tenants, []string{of}) {
		return nil
	}
	return edda.Classify(edda.Permanent, "this store was restored from a backup of the tenant %s and has nothing of others: run it with tenants: [%s] (--tenants %s), or name another --data", of, of, of)
}

// writeHolder writes beside the store where this process listens.
func (p *process) writeHolder() error {
	text, err := json.Marshal(Holder{Addr: p.server.Addr(), Store: p.db.ID(), Shard: p.settings.share.Shard})
	if err == nil {
		err = os.WriteFile(p.addrFile(), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("say where this process listens: %w", err)
	}
	return nil
}

func (p *process) addrFile() string {
	return filepath.Join(p.settings.Data, p.settings.storeFolder(), addrFile)
}

// closeStore closes the store, which nothing writes any more. The next owner begins meanwhile.
func (p *process) closeStore() error {
	var handing sync.WaitGroup
	if p.handsOver {
		handing.Go(p.stay.handOver)
	}
	defer handing.Wait()
	err := os.Remove(p.addrFile())
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	end := p.db.Close
	if p.stay.stays(nil) {
		end = p.db.Leave // the node opens it again at once, and the next owner needs the disk
	}
	return errors.Join(err, end())
}

// sizeCollector exports the size of the store's file.
type sizeCollector struct{ db *store.DB }

func sizeDesc() *prometheus.Desc {
	return prometheus.NewDesc("edda_store_bytes", "Size of the store's file: in use, and free for commits to use again.", []string{"state"}, nil)
}

func (c *sizeCollector) Describe(ch chan<- *prometheus.Desc) { ch <- sizeDesc() }

func (c *sizeCollector) Collect(ch chan<- prometheus.Metric) {
	s, err := c.db.Size()
	if err != nil {
		return // the store is closing
	}
	ch <- prometheus.MustNewConstMetric(sizeDesc(), prometheus.GaugeValue, float64(s.Bytes-s.Free), "used")
	ch <- prometheus.MustNewConstMetric(sizeDesc(), prometheus.GaugeValue, float64(s.Free), "free")
}
