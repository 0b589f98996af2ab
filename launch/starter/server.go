package starter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/launch/jobagent"
)

// Options of a Server.
type Options struct {
	Helper uint32   // the account that may make requests
	Keys   uint32   // the group that may read the daemons' keys: the helper's
	Rules  []Mapped // in order; the first match counts
	Range  Range    // accounts for identities that match no rule
	Tasks  int      // processes and threads of one job; 0: as many as all jobs may have
	State  string   // file from which the next starter learns what is running; "": none, it looks at the processes
	Log    *slog.Logger
	Audit  *audit.Log
}

// maxConns bounds the requests served concurrently; further connections wait in the kernel.
const maxConns = 64

// askTime bounds the arrival of a request.
const askTime = 5 * time.Second

// endTime bounds the wait for an agent's end, before the reply.
const endTime = 20 * time.Second

// Server starts job agents. Make it with New, run it with Serve.
type Server struct {
	opts Options

	mu       sync.Mutex // guards the fields below
	accounts *accounts
	agents   map[string]*started // by name
	fresh    uint32              // no job has had this account of the range and those after it, by the state file
	clean    map[uint32]bool     // whether nothing of a job can be left in an account that had one since
	sweep    func(*syscall.Credential) error
	remove   func(c *syscall.Credential, folder string) error
}

// beingSwept is the submitter of an account whose last job's files are being removed: nobody.
const beingSwept = "(being swept)"

// started is a running agent.
type started struct {
	UID      uint32
	Identity string
	PID      int    // of its guard
	Begun    uint64 // start time of that process, in kernel ticks
	Folder   string

	ended chan struct{} // closed when nothing is left of it
}

// New returns a server that knows the agents an earlier one started.
func New(opts Options) *Server {
	s := &Server{
		opts: opts, agents: map[string]*started{}, fresh: math.MaxUint32, clean: map[uint32]bool{}, sweep: jobagent.Sweep, remove: jobagent.RemoveFiles,
		accounts: &accounts{rules: opts.Rules, free: opts.Range, excluded: []uint32{opts.Helper}, live: map[uint32]string{}},
	}
	if uid := os.Getuid(); uid != 0 {
		s.accounts.excluded = append(s.accounts.excluded, uint32(uid))
	}
	s.load()
	return s
}

// Serve serves ln until ctx ends. It leaves the agents running.
func (s *Server) Serve(ctx context.Context, ln *net.UnixListener) error {
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	if err := jobagent.AdoptOrphans(); err != nil {
		return fmt.Errorf("child subreaper: %w", err)
	}
	var work sync.WaitGroup
	defer work.Wait()
	s.mu.Lock()
	for name, a := range s.agents {
		work.Go(func() { s.watchOver(ctx, name, a) })
	}
	s.mu.Unlock()
	room := make(chan struct{}, maxConns)
	for {
		c, err := ln.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // such as too many open files
			s.opts.Log.Warn("a connection cannot be accepted", "error", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		room <- struct{}{}
		work.Go(func() { // bounded by askTime and endTime
			defer func() { <-room }()
			defer c.Close()
			s.serveConn(ctx, c)
		})
	}
}

// serveConn serves one request.
func (s *Server) serveConn(ctx context.Context, c *net.UnixConn) {
	cred, err := local.PeerCred(c)
	if err == nil && cred.UID != s.opts.Helper {
		err = fmt.Errorf("request of uid %d (pid %d), but only uid %d, the helper's, may send requests", cred.UID, cred.PID, s.opts.Helper)
	}
	var q request
	var socket *os.File
	if err == nil {
		c.SetDeadline(time.Now().Add(askTime))
		var line []byte
		if line, socket, err = readLine(c); err == nil {
			q, err = decode(line)
		}
	}
	if socket != nil {
		defer socket.Close()
	}
	var r reply
	if err == nil {
		r, err = s.answer(ctx, q, socket)
	}
	if err != nil {
		r = reply{Refused: err.Error()}
		s.opts.Log.Warn("refused", "do", q.Do, "agent", q.Name, "identity", q.Identity, "reason", err)
		s.opts.Audit.Append(audit.Record{Event: audit.Refusal, User: q.Identity, Rule: "starter", Peer: fmt.Sprintf("uid %d", cred.UID), Reason: err.Error()})
	}
	text, err := json.Marshal(r)
	if err == nil {
		c.SetWriteDeadline(time.Now().Add(askTime))
		c.Write(append(text, '\n'))
	}
}

func (s *Server) answer(ctx context.Context, q request, socket *os.File) (reply, error) {
	switch q.Do {
	case doStart:
		if socket == nil {
			return reply{}, errors.New("the question has no socket for the agent")
		}
		uid, err := s.start(q, socket)
		return reply{UID: uid, Only: s.opts.Range.Has(uid)}, err
	case doKill:
		s.kill(q.Name)
		return reply{}, nil
	}
	s.mu.Lock()
	a := s.agents[q.Name]
	s.mu.Unlock()
	if a == nil {
		return reply{}, nil
	}
	select {
	case <-a.ended:
		return reply{}, nil
	case <-ctx.Done():
		return reply{}, errors.New("the starter ends")
	case <-time.After(endTime):
		return reply{}, fmt.Errorf("agent %s has not ended within %v", q.Name, endTime)
	}
}

// start starts an agent.
func (s *Server) start(q request, socket *os.File) (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agents[q.Name] != nil {
		return 0, fmt.Errorf("agent %s runs already", q.Name)
	}
	s.noteStrangers()
	uid, err := s.accounts.assign(q.Identity)
	if err != nil {
		return 0, err
	}
	_, shared := s.accounts.live[uid]
	credential, env, err := s.account(uid)
	if err == nil && !shared && s.opts.Range.Has(uid) && !s.isClean(uid) {
		if err = s.sweep(credential); err == nil {
			err = s.remove(credential, q.Folder)
		}
	}
	if err != nil {
		return 0, err
	}
	p, err := jobagent.Spawn(jobagent.Spec{Listener: socket, Env: env, Credential: credential, Group: q.Name, Memory: q.Memory, CPU: q.CPU, Tasks: s.opts.Tasks})
	if err != nil {
		return 0, err
	}
	a := &started{UID: uid, Identity: q.Identity, PID: p.PID(), Begun: startTicks(p.PID()), Folder: q.Folder, ended: make(chan struct{})}
	s.agents[q.Name] = a
	s.accounts.begins(uid, q.Identity)
	s.clean[uid] = false
	s.save()
	s.opts.Log.Info("job agent started", "agent", q.Name, "identity", q.Identity, "uid", uid, "pid", a.PID)
	s.opts.Audit.Append(audit.Record{Event: audit.JobStart, User: q.Identity, Rule: "starter", Reason: fmt.Sprintf("agent %s as uid %d, pid %d", q.Name, uid, a.PID)})
	go func() { // ends with the agent, which may outlive this process
		p.Wait()
		s.processEnded(q.Name, a)
	}()
	return uid, nil
}

// watchOver waits for the end of an agent that an earlier starter started.
func (s *Server) watchOver(ctx context.Context, name string, a *started) {
	for startTicks(a.PID) == a.Begun {
		select {
		case <-ctx.Done():
			return
		case <-time.After(200 * time.Millisecond): // not a child of this process
		}
	}
	jobagent.RemoveGroup(name)
	s.processEnded(name, a)
}

// isClean reports whether nothing of an earlier job can be left in an account of the range. The caller must
// hold mu.
func (s *Server) isClean(uid uint32) bool {
	if clean, had := s.clean[uid]; had {
		return clean
	}
	return uid >= s.fresh
}

// processEnded ends what is left of an agent's job, and frees its account. Files may be many: they are removed
// while others are served, and until then nobody gets the account.
func (s *Server) processEnded(name string, a *started) {
	credential, files := s.endProcesses(name, a)
	if !files {
		return
	}
	err := s.remove(credential, a.Folder)
	if err != nil {
		s.opts.Log.Warn("files of a job may be left", "uid", a.UID, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clean[a.UID] = err == nil
	s.accounts.ends(a.UID)
	s.save()
}

// endProcesses ends the processes that an agent has left, and reports whether its account's files are to be removed.
func (s *Server) endProcesses(name string, a *started) (credential *syscall.Credential, files bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.agents, name)
	var guards []int
	for _, other := range s.agents {
		if other.UID == a.UID {
			guards = append(guards, other.PID)
		}
	}
	credential, _, err := s.account(a.UID)
	switch {
	case err != nil:
	case !s.opts.Range.Has(a.UID):
		err = jobagent.EndOrphans(credential, guards)
	case len(guards) == 0:
		files = true
		err = s.sweep(credential)
	}
	if err != nil {
		s.opts.Log.Warn("something of a job may be left", "uid", a.UID, "error", err)
	}
	switch {
	case files:
		s.accounts.live[a.UID] = beingSwept
	case len(guards) == 0:
		s.accounts.ends(a.UID)
	}
	s.save()
	s.opts.Log.Info("job agent ended", "agent", name, "identity", a.Identity, "uid", a.UID)
	s.opts.Audit.Append(audit.Record{Event: audit.JobEnd, User: a.Identity, Rule: "starter", Reason: fmt.Sprintf("agent %s as uid %d", name, a.UID)})
	close(a.ended)
	return credential, files
}

// kill kills an agent and its processes, by a process of their account.
func (s *Server) kill(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agents[name]
	if a == nil || startTicks(a.PID) != a.Begun {
		return
	}
	jobagent.RemoveGroup(name) // needs no new process, which the job's limit on tasks could prevent
	if credential, _, err := s.account(a.UID); err == nil && startTicks(a.PID) == a.Begun {
		jobagent.KillTree(credential, a.PID)
	}
	s.opts.Log.Warn("job agent killed", "agent", name, "identity", a.Identity, "uid", a.UID)
}

// account returns the credential and the clean environment for a process of an account.
func (s *Server) account(uid uint32) (*syscall.Credential, []string, error) {
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/bin:/usr/bin:/bin"
	}
	env := []string{"PATH=" + path, "SHELL=/bin/sh"}
	for _, name := range []string{"LANG", "LC_ALL", "TZ"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	id := strconv.FormatUint(uint64(uid), 10)
	if s.opts.Range.Has(uid) {
		return &syscall.Credential{Uid: uid, Gid: uid}, append(env, "USER="+id, "LOGNAME="+id), nil
	}
	u, err := user.LookupId(id)
	if err != nil {
		return nil, nil, fmt.Errorf("account %d: %w", uid, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, nil, fmt.Errorf("account %d: group %q", uid, u.Gid)
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, nil, fmt.Errorf("groups of %s: %w", u.Username, err)
	}
	c, err := credential(uid, uint32(gid), groups, s.opts.Keys)
	return c, append(env, "USER="+u.Username, "LOGNAME="+u.Username, "HOME="+u.HomeDir), err
}

// credential returns the credential for a process of a system account: with all its groups except
// root's and the one that may read the daemons' keys.
func credential(uid, gid uint32, groups []string, keys uint32) (*syscall.Credential, error) {
	if gid == 0 || gid == keys {
		return nil, fmt.Errorf("account %d runs no jobs: its group %d is root's, or may read the keys of a daemon", uid, gid)
	}
	c := &syscall.Credential{Uid: uid, Gid: gid}
	for _, g := range groups {
		if n, err := strconv.ParseUint(g, 10, 32); err == nil && n != 0 && uint32(n) != keys {
			c.Groups = append(c.Groups, uint32(n))
		}
	}
	return c, nil
}

// noteStrangers marks accounts of the range with processes as used; an earlier starter may have
// started them. The caller must hold mu.
func (s *Server) noteStrangers() {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		var stat syscall.Stat_t
		if syscall.Stat(p, &stat) != nil || !s.opts.Range.Has(stat.Uid) {
			continue
		}
		if _, known := s.accounts.live[stat.Uid]; !known {
			s.accounts.live[stat.Uid] = ""
		}
	}
	for uid, owner := range s.accounts.live { // dropped if the next scan does not find them
		if owner == "" && !hasProcess(uid, processes) {
			s.accounts.ends(uid)
		}
	}
}

func hasProcess(uid uint32, processes []string) bool {
	for _, p := range processes {
		var stat syscall.Stat_t
		if syscall.Stat(p, &stat) == nil && stat.Uid == uid {
			return true
		}
	}
	return false
}

// kept is the content of the state file.
type kept struct {
	Agents map[string]*started
	Used   []uint32
	Next   uint32
}

// save writes the state file. The caller must hold mu.
func (s *Server) save() {
	if s.opts.State == "" {
		return
	}
	text, err := json.Marshal(kept{s.agents, s.accounts.used, s.accounts.next})
	if err == nil {
		err = os.WriteFile(s.opts.State+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(s.opts.State+".new", s.opts.State)
	}
	if err != nil {
		s.opts.Log.Warn("the next starter will not know what runs", "error", err)
	}
}

// readKept reads the state file.
func readKept(text []byte) (k kept, err error) {
	if err := json.Unmarshal(text, &k); err != nil {
		return k, err
	}
	for name, a := range k.Agents {
		if a == nil {
			return k, fmt.Errorf("nothing is said of agent %q", name)
		}
	}
	return k, nil
}

// load finds the agents that an earlier starter started and that are still running.
func (s *Server) load() {
	text, err := os.ReadFile(s.opts.State)
	if err != nil {
		if s.opts.State != "" && errors.Is(err, os.ErrNotExist) {
			s.fresh = s.opts.Range.First
		}
		return
	}
	k, err := readKept(text)
	if err != nil {
		s.opts.Log.Warn("what an earlier starter had started is not known", "file", s.opts.State, "error", err)
		return
	}
	for _, uid := range k.Used {
		if s.opts.Range.Has(uid) {
			s.accounts.used = append(s.accounts.used, uid)
		}
	}
	s.accounts.next = k.Next
	s.fresh = uint32(min(uint64(s.opts.Range.First)+uint64(k.Next), math.MaxUint32))
	for name, a := range k.Agents {
		a.ended = make(chan struct{})
		s.agents[name] = a
		s.accounts.begins(a.UID, a.Identity)
	}
}

// startTicks returns a process's start time in kernel ticks; 0: there is no such process.
func startTicks(pid int) uint64 { return begunIn("/proc", pid) }

// begunIn is begun for a folder like /proc. Where that hides others' processes (hidepid), it
// returns 1 for every live process.
func begunIn(proc string, pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("%s/%d/stat", proc, pid))
	if err == nil {
		return jobagent.StartOf(text)
	}
	if pid > 0 && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return 1
	}
	return 0
}
