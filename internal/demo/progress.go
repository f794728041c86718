package demo

import (
	"fmt"
	"io"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// bar shows how many sagas have ended: a bar on a terminal, a line a quarter elsewhere.
type bar struct {
	out   io.Writer
	total int
	said  int
	pool  *mpb.Progress
	bar   *mpb.Bar
}

func newBar(out io.Writer, terminal bool, total int) *bar {
	b := &bar{out: out, total: total}
	if !terminal {
		return b
	}
	b.pool = mpb.New(mpb.WithOutput(out), mpb.WithWidth(48))
	b.bar = b.pool.AddBar(int64(total),
		mpb.PrependDecorators(decor.Name("sagas ended ")),
		mpb.AppendDecorators(decor.CountersNoUnit("%d / %d"), decor.Elapsed(decor.ET_STYLE_GO, decor.WC{W: 6})))
	return b
}

func (b *bar) set(n int) {
	if b.bar != nil {
		b.bar.SetCurrent(int64(n))
		return
	}
	if quarter := n * 4 / b.total; quarter > b.said {
		b.said = quarter
		fmt.Fprintf(b.out, "  %d of %d sagas ended\n", n, b.total)
	}
}

func (b *bar) end() {
	if b.bar == nil {
		return
	}
	b.bar.Abort(false) // has no effect on a full bar
	b.pool.Wait()
}
