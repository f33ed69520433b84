/* The protocol of one name on one machine, for the model checker Spin: N contenders for an exclusive hold, and CRASHES
 * SIGKILLs of launchers and commands.  docs/design.md has the protocol; tests/model/test_model.py runs this and its mutants.
 *
 * - exclusion, recorded before exec, order: an assertion each
 * - nobody stuck: Spin finds no invalid end state, and with -DNP no endless run: each contender ends in every run
 * - a step is a system call that others can see the effect of; before it, its process may be killed
 * - contenders are equal, so they come one after the other: all other orders are the same runs with other names
 * - left out: other modes, policies, several names, kept holds, pid namespaces, damage, reused pids, power loss
 */
#ifndef CRASHES
#define CRASHES 3
#endif
#define N 3
#define T (2 * N)  /* numbers: each contender takes one to wait and one to hold */
#define NONE 255

mtype = { SEAT, HOLD, FORKED, RUNNING, ENDED, WAITER, LIVE, ORPHANED };

byte gate = NONE;      /* the contender that has flock(2) on .gate */
byte counter;          /* the text of .gate: how many numbers were taken */
mtype kind[T];         /* the file of ticket n, 0 without one; published whole, so written and locked in the same step */
byte copies[T];        /* the descriptors that keep its flock(2): the launcher's and a forked child's */
byte record[T];        /* 1 + the contender whose command its record names, 0 without a closing line */
mtype command[N];      /* the command's process, 0 before the fork */
bool go[N];            /* the go message is in the pipe */
bool lives[N];         /* the launcher */
bool shares[N];        /* its child has its descriptor of .gate too, and so what flock(2) it has on it */
byte came;             /* contenders that have come */
byte crashes;
byte running;          /* for the assertions: commands after their exec */
byte place[N] = NONE;  /* for the assertions: the number with which a contender waits */
hidden byte n;

#define LOCKED(t) (copies[t] > 0)
#define NAMES_LIVING(t) (record[t] && command[record[t] - 1] != ENDED)  /* mutant: orphan */
#define CLOSE(t) if :: t != NONE && LOCKED(t) -> copies[t]-- :: else fi
#define CLOSE_GATE shares[me] = false; if :: gate == me && !lives[me] -> gate = NONE :: else fi
#define KILL atomic { crashes < CRASHES -> crashes++; goto killed }
#define STEP(call) if :: atomic { call } :: atomic { crashes < CRASHES -> crashes++; place[me] = NONE; goto killed } fi

proctype Child(byte me, hold, waiting) {  /* with the descriptors that it inherited */
  if
  :: hold == NONE -> if :: atomic { CLOSE(waiting); CLOSE_GATE; waiting = NONE } :: KILL fi  /* forked in advance */
  :: else
  fi;
  if
  :: atomic { go[me] ->
       CLOSE(hold); CLOSE(waiting);  /* close-on-exec */
       hold = NONE; waiting = NONE; command[me] = RUNNING; running++;
       assert(running == 1);  /* exclusion */
       n = 0; do :: n < T && !(kind[n] == HOLD && record[n] == me + 1) -> n++ :: else -> break od;
       assert(n < T)  /* recorded before exec */
     }
  :: atomic { !go[me] && !lives[me] -> goto killed }  /* end of file: the launcher died */
  :: KILL
  fi;
  running--;
killed:  /* or ended */
  atomic { CLOSE(hold); CLOSE(waiting); CLOSE_GATE; hold = NONE; waiting = NONE; command[me] = ENDED }
}

proctype Launcher(byte me) {
  byte waiting = NONE, hold = NONE, obstacle = NONE, seen;
  mtype found;
  bool is_head, is_late;

  atomic { gate == NONE && came == me -> gate = me; came++; lives[me] = true };
  goto look;
again:
  STEP(gate == NONE -> gate = me);
look:  /* in one step: a dead ticket stays dead, so a look finds what was there when it read its last ticket */
  STEP(
    if
    :: is_head && seen == counter && found == LIVE && !kind[obstacle] -> obstacle = NONE; found = 0  /* is_free */
    :: else ->
       obstacle = NONE; found = 0;
       n = (waiting == NONE -> counter : waiting);
       do  /* the nearest waiter ahead */
       :: n > 0 && !found -> n--;
          if
          :: kind[n] == SEAT && LOCKED(n) -> obstacle = n; found = WAITER  /* mutant: order */
          :: kind[n] == SEAT && !LOCKED(n) -> kind[n] = 0
          :: else
          fi
       :: else -> break
       od;
       n = 0;
       do  /* without one, the hold */
       :: n < counter && !found ->
          if
          :: kind[n] == HOLD && LOCKED(n) -> obstacle = n; found = LIVE
          :: kind[n] == HOLD && !LOCKED(n) && NAMES_LIVING(n) -> obstacle = n; found = ORPHANED
          :: kind[n] == HOLD && !LOCKED(n) && !NAMES_LIVING(n) -> kind[n] = 0
          :: else
          fi;
          n++
       :: else -> break
       od
    fi;
    seen = counter);
  if
  :: !found -> goto publish
  :: found && waiting == NONE ->
     if
     :: STEP(waiting = counter; counter++); STEP(kind[waiting] = SEAT; copies[waiting] = 1; place[me] = waiting)
     :: goto killed  /* without --wait: busy */
     fi
  :: found && waiting != NONE && is_late -> goto give_up
  :: else
  fi;
  STEP(gate = NONE);
  if
  :: found != WAITER && !is_head ->  /* at the head: prepare the handoff, and look again */
     STEP(command[me] = FORKED; copies[waiting]++; shares[me] = true; run Child(me, NONE, waiting); is_head = true)
  :: STEP(found == ORPHANED && !NAMES_LIVING(obstacle) || found != ORPHANED && !LOCKED(obstacle))  /* mutant: wait */
  :: !is_late -> is_late = true  /* the deadline */
  fi;
  goto again;
publish:
  STEP(hold = counter; counter++);
  STEP(kind[hold] = HOLD; copies[hold] = 1; place[me] = NONE; obstacle = NONE; seen = 0; is_late = false;
    n = 0; do :: n < N && (place[n] == NONE || waiting != NONE && place[n] > waiting) -> n++ :: else -> break od;
    assert(n == N)  /* order: no other contender waits, but behind us */);
  STEP(gate = NONE);
  if
  :: command[me] != FORKED ->  /* not forked in advance, or killed since */
     STEP(command[me] = FORKED; copies[hold]++; if :: waiting != NONE -> copies[waiting]++ :: else fi;
       run Child(me, hold, waiting))
  :: else
  fi;
  STEP(record[hold] = me + 1);  /* mutant: record */
  STEP(go[me] = true);
  if
  :: waiting != NONE -> STEP(kind[waiting] = 0); STEP(copies[waiting] = 0)  /* finish_handoff */
  :: else
  fi;
  STEP(command[me] == ENDED -> kind[hold] = 0);  /* release: unlink, LOCK_UN */
  STEP(copies[hold] = 0);
  goto killed;
give_up:
  STEP(gate = NONE; place[me] = NONE);
  STEP(kind[waiting] = 0);
  STEP(copies[waiting] = 0);
killed:  /* or ended: the kernel closes what is open */
  atomic {
    if :: gate == me && !shares[me] -> gate = NONE :: else fi;  /* mutant: gate */
    CLOSE(waiting);
    CLOSE(hold);
    waiting = NONE; hold = NONE; obstacle = NONE; seen = 0; found = 0; is_head = false; is_late = false; lives[me] = false
  }
}

init { atomic { run Launcher(0); run Launcher(1); run Launcher(2) } }
