package lambdatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"
)

// environment is one process of a function, or a place for its Handler.
// Server.mu guards it.
type environment struct {
	id     string
	f      *function
	cmd    *exec.Cmd // nil for a Handler
	ctx    context.Context
	cancel context.CancelFunc // ends ctx, and so a poll for the next invocation

	ready  bool        // has asked for an invocation, so it is started
	inv    *invocation // that it runs or will run
	next   chan *invocation
	timer  *time.Timer // init timeout, then the deadline
	killer *time.Timer // Faults.KillAfter
	frozen bool
	dead   bool
	failed *errFunction // why it could not start
}

// start makes an environment; it needs mu.
func (s *Server) start(f *function) *environment {
	e := &environment{id: newID(), f: f, next: make(chan *invocation, 1)}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	f.envs = append(f.envs, e)
	s.envs[e.id] = e
	f.counters.ColdStarts++
	if f.Handler != nil {
		e.ready = true
		return e
	}
	if err := s.spawn(e); err != nil {
		e.failed = exited(err.Error())
		return e
	}
	e.timer = time.AfterFunc(f.InitTimeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !e.ready && !e.dead {
			f.counters.TimedOut++
			s.end(e, &errFunction{kind: "Unhandled", payload: failure("Sandbox.Timedout",
				fmt.Sprintf("Init did not end within %s", f.InitTimeout))})
		}
	})
	return e
}

// spawn runs the binary of e and watches for its end.
func (s *Server) spawn(e *environment) error {
	cmd := exec.Command(e.f.Bootstrap)
	cmd.Env = append(s.Env(),
		"PATH="+os.Getenv("PATH"),
		"HOME="+os.TempDir(),
		"TZ=:UTC",
		"LANG=en_US.UTF-8",
		"AWS_LAMBDA_RUNTIME_API="+s.listener.Addr().String()+"/environment/"+e.id,
		"AWS_LAMBDA_FUNCTION_NAME="+e.f.Name,
		"AWS_LAMBDA_FUNCTION_VERSION=$LATEST",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE=128",
		"AWS_LAMBDA_INITIALIZATION_TYPE=on-demand",
		"AWS_LAMBDA_LOG_GROUP_NAME=/aws/lambda/"+e.f.Name,
		"AWS_LAMBDA_LOG_STREAM_NAME="+e.id,
		"AWS_EXECUTION_ENV=AWS_Lambda_provided.al2023",
		"_HANDLER=bootstrap",
	)
	if dir := os.Getenv("GOCOVERDIR"); dir != "" {
		cmd.Env = append(cmd.Env, "GOCOVERDIR="+dir)
	}
	cmd.Env = append(cmd.Env, e.f.Env...)
	if e.f.Log != nil {
		cmd.Stdout, cmd.Stderr = e.f.Log, e.f.Log
		// A grandchild that holds the pipe must not hold Close.
		cmd.WaitDelay = time.Second
	}
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	e.cmd = cmd
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		err := cmd.Wait()
		how := "exit status 0"
		if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			how = err.Error()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end(e, exited(how))
	}()
	return nil
}

// begin hands the invocation of e to it; it needs mu.
func (s *Server) begin(e *environment) {
	f, inv := e.f, e.inv
	f.counters.Invocations++
	s.change()
	inv.deadline = time.Now().Add(f.Timeout)
	if e.timer != nil {
		e.timer.Stop()
	}
	e.timer = time.AfterFunc(f.Timeout, func() { s.timeOut(e, inv) })
	if f.Faults.KillAfter != nil {
		if after := f.Faults.KillAfter(f.counters.Invocations); after > 0 {
			e.killer = time.AfterFunc(after, func() { s.kill(e, inv) })
		}
	}
	if f.Handler != nil {
		s.running.Go(func() { s.handle(e, inv) })
		return
	}
	if e.frozen {
		e.frozen = false
		thaw(e.cmd)
	}
	e.next <- inv
}

// handle runs a Handler in this process.
func (s *Server) handle(e *environment, inv *invocation) {
	ctx, cancel := context.WithDeadline(e.ctx, inv.deadline)
	defer cancel()
	out, err := e.f.Handler(ctx, inv.payload)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.dead {
		return
	}
	r := result{payload: out}
	if err != nil {
		r = result{err: &errFunction{kind: "Unhandled", payload: failure("errorString", err.Error())}}
	}
	inv.answer = &r
	s.free(e)
}

// free takes the invocation from e, as it has asked for the next. It needs mu.
func (s *Server) free(e *environment) {
	e.stopTimers()
	s.settle(e, result{err: exited("no response was sent")})
	s.change()
}

// freeze stops an idle process; it needs mu.
func (e *environment) freeze() {
	if e.cmd != nil && !e.f.KeepRunning && !e.frozen {
		e.frozen = true
		halt(e.cmd)
	}
}

func (s *Server) timeOut(e *environment, inv *invocation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.dead || e.inv != inv {
		return
	}
	e.f.counters.TimedOut++
	s.end(e, &errFunction{kind: "Unhandled", payload: failure("Sandbox.Timedout",
		fmt.Sprintf("RequestId: %s Error: Task timed out after %.2f seconds", inv.id, e.f.Timeout.Seconds()))})
}

func (s *Server) kill(e *environment, inv *invocation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.dead || e.inv != inv {
		return
	}
	e.f.counters.Killed++
	s.end(e, exited("signal: killed"))
}

// end kills e, if it lives, and fails its invocation. It needs mu.
func (s *Server) end(e *environment, why *errFunction) {
	if e.dead {
		return
	}
	e.dead = true
	e.cancel()
	e.stopTimers()
	if e.cmd != nil {
		destroy(e.cmd)
	}
	f := e.f
	f.envs = slices.DeleteFunc(f.envs, func(o *environment) bool { return o == e })
	delete(s.envs, e.id)
	s.settle(e, result{err: why})
	s.change()
}

func (e *environment) stopTimers() {
	if e.timer != nil {
		e.timer.Stop()
	}
	if e.killer != nil {
		e.killer.Stop()
	}
}
