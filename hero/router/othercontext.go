package router

import (
	"context"

	"edda/hero"
	"edda/hero/supervisor"
)

// toOtherContext takes a job that is to run in another context there: into the msg_in of
// a context of this Redis, or over Mycelium to the actor that the message is for.
// done is false where the context's runners are to be asked instead.
func (l *contextLoop) toOtherContext(ctx context.Context, m hero.Message, job hero.Job, url string) (out end, done bool, err error) {
	if url != "" {
		return end{}, false, nil
	}
	here, err := l.r.has(ctx, job.ContextID)
	if err != nil {
		return end{}, false, err
	}
	box, where := mailbox{context: job.ContextID}, place(job.ContextID, 0)
	if !here {
		where = place(job.ContextID, m.To)
		if m.To == 0 {
			return end{}, false, nil
		}
		actor, err := l.r.db.Actor(ctx, m.To)
		if err != nil && absent(err) != nil {
			return end{}, false, err
		}
		var ok bool
		if box, ok = boxOf(actor, true); !ok {
			return broke("context %d is not in this Redis, and actor %d has no address of Mycelium", job.ContextID, m.To), true, nil
		}
	}
	if err := l.expect(ctx, m, job); err != nil {
		return end{}, false, err
	}
	if err := l.note(ctx, m.Key(), numbered(sentTo, job.ID), where); err != nil {
		return end{}, false, err
	}
	why, err := l.forward(ctx, m, job, box)
	if err != nil {
		return end{}, false, err
	}
	if why != "" {
		return broke("%s", why), true, nil
	}
	l.acknowledged(ctx, m, job, supervisor.Progress{Status: hero.TransportDelivered, Acknowledged: true})
	return end{}, true, nil
}

// forward hands one job of the message over.
func (l *contextLoop) forward(ctx context.Context, m hero.Message, job hero.Job, box mailbox) (why string, err error) {
	m.TargetContext, m.Job, m.Nodes, m.FlowID = job.ContextID, []hero.Job{job}, nil, 0
	return l.put(ctx, m, box)
}
