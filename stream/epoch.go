package stream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

// removeFormerWithin bounds the removal of former owners' consumers. Messages come meanwhile.
const removeFormerWithin = 5 * time.Second

// epochConsumer returns the name of a consumer in an epoch, <name>-e<epoch>. Without a cluster it is
// the name itself.
func epochConsumer(name string, epoch uint64) string {
	if epoch == 0 {
		return name
	}
	return fmt.Sprintf("%s-e%d", name, epoch)
}

// consumerEpoch returns the epoch of a consumer; ok is false for the consumer of another name.
func consumerEpoch(consumer, name string) (epoch uint64, ok bool) {
	digits, ok := strings.CutPrefix(consumer, name+"-e")
	if !ok {
		return 0, consumer == name
	}
	epoch, err := strconv.ParseUint(digits, 10, 64)
	return epoch, err == nil && epochConsumer(name, epoch) == consumer
}

// removeFormer removes the consumers of lower epochs once, so that a former owner reads no more. It
// needs no fence: no node removes the consumer of a higher epoch. What it cannot remove does no
// harm, and the server does it abandonedAfter its last use. For the same reason a process without a
// cluster leaves the consumers of epochs alone.
func (r *reader) removeFormer(ctx context.Context) {
	if r.epoch == 0 || r.alone {
		return
	}
	within, cancel := context.WithTimeout(ctx, removeFormerWithin)
	defer cancel()
	names := r.stream.ConsumerNames(within)
	var former []string
	for consumer := range names.Name() {
		if epoch, ours := consumerEpoch(consumer, r.sharedName); ours && epoch < r.epoch {
			former = append(former, consumer)
		}
	}
	err := names.Err()
	for _, consumer := range former {
		if gone := r.js.DeleteConsumer(within, r.name, consumer); gone != nil && !errors.Is(gone, jetstream.ErrConsumerNotFound) {
			err = errors.Join(err, gone)
		}
	}
	r.alone = err == nil
	if err != nil && ctx.Err() == nil {
		r.log.Warn("the consumers of former owners stay for now", zap.String("stream", r.name), zap.Error(err))
	}
}
