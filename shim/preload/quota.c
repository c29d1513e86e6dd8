#include "quota.h"

#include "memory.h"
#include "log.h"
#include "syscalls.h"

#define PATIENCE_MS 120000 /* an agent that is being upgraded is back by then */
#define AGAIN_MS 50 /* guessed: soon enough for an agent that is back, cheap while it is not */
#define ANSWER_MS 2000 /* guessed: an answer takes microseconds; asking again is harmless */

/* Beside the verdicts of the protocol: there was none. */
#define NO_ANSWER (-1)

static struct balance *find(struct quota *quota, uint32_t card)
{
	for (uint32_t i = 0; i < quota->count; i++)
		if (quota->balances[i].card == card)
			return &quota->balances[i];
	if (quota->count == PROTOCOL_CARDS)
		return NULL;
	quota->balances[quota->count].card = card;
	return &quota->balances[quota->count++];
}

/*
 * Under `talk_lock` and `balances_lock`: the process holds no more than it uses from now on, and the agent is told
 * so.
 */
static struct protocol_holding lower(struct balance *balance, uint64_t *before)
{
	*before = balance->held;
	balance->held = balance->used;
	return (struct protocol_holding){ .minor = balance->card, .held_bytes = balance->used };
}

/* Under `balances_lock`: it could not be told. */
static void restore(struct balance *balance, uint64_t before)
{
	if (balance->held < before)
		balance->held = before;
}

static bool send_hello(struct quota *quota)
{
	struct connection_question question = { 0 };
	uint64_t before[PROTOCOL_CARDS] = { 0 };
	bool is_sent;

	lock_acquire(&quota->balances_lock);
	for (uint32_t i = 0; i < quota->count; i++)
		question.holdings[question.head.count++] = lower(&quota->balances[i], &before[i]);
	lock_release(&quota->balances_lock);
	is_sent = connection_send(&quota->connection, PROTOCOL_HELLO, &question);
	lock_acquire(&quota->balances_lock);
	for (uint32_t i = 0; i < question.head.count && !is_sent; i++)
		restore(&quota->balances[i], before[i]);
	lock_release(&quota->balances_lock);
	return is_sent;
}

static bool is_understood(struct quota *quota, const struct protocol_answer *answer)
{
	if (answer->version == PROTOCOL_VERSION && answer->verdict != PROTOCOL_NOT_UNDERSTOOD)
		return true;
	log_once(LOG_OTHER_PROTOCOL, "the agent of this node speaks another version; waiting for one that does not");
	connection_close(&quota->connection);
	return false;
}

/* A connection whose agent knows what this process holds. */
static bool greet(struct quota *quota, int64_t until_ms)
{
	struct protocol_answer answer = { 0 };
	int64_t soon = sys_now_ms() + ANSWER_MS;

	if (!connection_is_open(&quota->connection)) {
		quota->is_greeted = false;
		if (!connection_open(&quota->connection))
			return false;
	}
	if (quota->is_greeted)
		return true;
	if (!send_hello(quota) || !connection_receive(&quota->connection, &answer, soon < until_ms ? soon : until_ms) ||
	    !is_understood(quota, &answer))
		return false;
	if (answer.verdict == PROTOCOL_UNLIMITED)
		atomic_store(&quota->is_unlimited, true);
	memcpy(quota->driver_version, answer.driver_version, sizeof(answer.driver_version));
	quota->driver_version[sizeof(quota->driver_version) - 1] = '\0';
	quota->is_greeted = true;
	return true;
}

/* One question and its answer. False: none came in time; then it is unknown whether the agent has counted it. */
static bool ask_once(struct quota *quota, enum protocol_kind kind, struct protocol_holding holding,
		     struct protocol_answer *answer, int64_t until_ms)
{
	struct connection_question question = { .head.count = 1, .holdings = { holding } };
	int64_t soon = sys_now_ms() + ANSWER_MS;

	return connection_send(&quota->connection, kind, &question) &&
	       connection_receive(&quota->connection, answer, soon < until_ms ? soon : until_ms) &&
	       is_understood(quota, answer);
}

/* How long to wait for an agent that does not answer: not at all where the last wait was in vain. */
struct patience {
	int64_t until_ms;
	bool is_short; /* an agent that cannot be reached is not waited for */
};

static struct patience short_patience(void)
{
	return (struct patience){ sys_now_ms() + ANSWER_MS, true };
}

static struct patience long_patience(struct quota *quota)
{
	if (atomic_load(&quota->is_away))
		return short_patience();
	return (struct patience){ sys_now_ms() + PATIENCE_MS, false };
}

static bool is_over(struct quota *quota, struct patience patience)
{
	return sys_now_ms() >= patience.until_ms || (patience.is_short && !connection_is_open(&quota->connection));
}

/* Under `talk_lock`. Asks again and again; what is asked is absolute, so that asking twice counts once. */
static int ask(struct quota *quota, enum protocol_kind kind, struct protocol_holding holding,
	       struct protocol_answer *answer, struct patience patience)
{
	while (!greet(quota, patience.until_ms) ||
	       !(atomic_load(&quota->is_unlimited) || ask_once(quota, kind, holding, answer, patience.until_ms))) {
		atomic_store(&quota->is_silent, true);
		if (is_over(quota, patience)) {
			quota->is_greeted = false;
			atomic_store(&quota->is_away, true);
			return NO_ANSWER;
		}
		if (!connection_is_open(&quota->connection))
			sys_pause_ms(AGAIN_MS);
	}
	atomic_store(&quota->is_away, false);
	atomic_store(&quota->is_silent, false);
	if (!atomic_load(&quota->is_unlimited) && answer->verdict == PROTOCOL_UNLIMITED)
		atomic_store(&quota->is_unlimited, true);
	return atomic_load(&quota->is_unlimited) ? PROTOCOL_UNLIMITED : answer->verdict;
}

static struct balance *find_credit(struct quota *quota)
{
	for (uint32_t i = 0; i < quota->count; i++)
		if (quota->balances[i].held > quota->balances[i].used)
			return &quota->balances[i];
	return NULL;
}

static bool send_hello_again(struct quota *quota)
{
	quota->is_greeted = false;
	if (connection_is_open(&quota->connection) || connection_open(&quota->connection))
		quota->is_greeted = send_hello(quota);
	return quota->is_greeted;
}

/* Under `talk_lock`: tells the agent of one card's credit. False: that could not be sent without waiting. */
static bool report_credit(struct quota *quota)
{
	struct connection_question question = { .head.count = 1 };
	struct balance *balance;
	uint64_t before = 0;

	if (!connection_is_open(&quota->connection) || !quota->is_greeted)
		return send_hello_again(quota);
	lock_acquire(&quota->balances_lock);
	balance = find_credit(quota);
	if (balance)
		question.holdings[0] = lower(balance, &before);
	lock_release(&quota->balances_lock);
	if (!balance || connection_send(&quota->connection, PROTOCOL_GIVE, &question))
		return true;
	lock_acquire(&quota->balances_lock);
	restore(balance, before);
	lock_release(&quota->balances_lock);
	return send_hello_again(quota);
}

static bool has_credit(struct quota *quota)
{
	bool found;

	lock_acquire(&quota->balances_lock);
	found = find_credit(quota);
	lock_release(&quota->balances_lock);
	return found;
}

/* Where `talk_lock` is held, its holder reports the credit: it checks again after releasing the lock. */
static void report_all_credit(struct quota *quota)
{
	bool is_reported = true;

	while (is_reported && has_credit(quota) && lock_try(&quota->talk_lock)) {
		is_reported = report_credit(quota);
		lock_release(&quota->talk_lock);
	}
}

static void end_conversation(struct quota *quota)
{
	lock_release(&quota->talk_lock);
	report_all_credit(quota);
}

enum quota_state quota_meet_agent(struct quota *quota)
{
	struct patience patience;
	enum quota_state state;

	lock_acquire(&quota->talk_lock);
	patience = long_patience(quota);
	while (!greet(quota, patience.until_ms) && !is_over(quota, patience))
		if (!connection_is_open(&quota->connection))
			sys_pause_ms(AGAIN_MS);
	if (atomic_load(&quota->is_unlimited))
		state = QUOTA_UNLIMITED;
	else
		state = quota->is_greeted ? QUOTA_LIMITED : QUOTA_NO_AGENT;
	atomic_store(&quota->is_away, state == QUOTA_NO_AGENT);
	end_conversation(quota);
	return state;
}

enum fit { FITS, TOO_MUCH, NO_CARD };

/* Charges what is granted already; otherwise sets what has to be asked for. */
static enum fit charge_granted(struct quota *quota, uint32_t card, uint64_t bytes, struct protocol_holding *wanted)
{
	struct balance *balance;
	enum fit fit = NO_CARD;

	lock_acquire(&quota->balances_lock);
	balance = find(quota, card);
	if (balance && bytes <= UINT64_MAX - balance->used) {
		wanted->minor = card;
		wanted->held_bytes = balance->used + bytes;
		fit = wanted->held_bytes <= balance->held ? FITS : TOO_MUCH;
		if (fit == FITS)
			balance->used += bytes;
	}
	lock_release(&quota->balances_lock);
	return fit;
}

/* Stores the agent's answer about a card, of which it has been told `held`. */
static void remember(struct quota *quota, struct protocol_holding told, const struct protocol_answer *answer)
{
	struct balance *balance;
	uint64_t held = told.held_bytes;

	lock_acquire(&quota->balances_lock);
	balance = find(quota, told.minor);
	if (balance) {
		if (answer->verdict == PROTOCOL_YES && held > balance->held)
			balance->held = held;
		if (answer->verdict == PROTOCOL_NO)
			held = balance->held;
		balance->limit = answer->limit_bytes;
		balance->others = answer->used_bytes > held ? answer->used_bytes - held : 0;
		balance->is_known = true;
	}
	lock_release(&quota->balances_lock);
}

static bool charge_asking(struct quota *quota, uint32_t card, uint64_t bytes)
{
	struct patience patience = long_patience(quota);
	struct protocol_holding wanted = { 0 }, refused = { .held_bytes = UINT64_MAX };
	struct protocol_answer answer = { 0 };
	enum fit fit;

	while ((fit = charge_granted(quota, card, bytes, &wanted)) == TOO_MUCH) {
		/* Less than what was refused: another thread gave some back meanwhile. */
		if (wanted.held_bytes >= refused.held_bytes)
			break;
		switch (ask(quota, PROTOCOL_HOLD, wanted, &answer, patience)) {
		case PROTOCOL_UNLIMITED:
			return true;
		case PROTOCOL_YES:
			remember(quota, wanted, &answer);
			break;
		case PROTOCOL_NO:
			remember(quota, wanted, &answer);
			refused = wanted;
			break;
		default:
			return false;
		}
	}
	return fit == FITS;
}

bool quota_try_charge(struct quota *quota, uint32_t card, uint64_t bytes)
{
	struct protocol_holding wanted;
	enum fit fit = charge_granted(quota, card, bytes, &wanted);
	bool is_charged;

	if (fit != TOO_MUCH)
		return fit == FITS;
	lock_acquire(&quota->talk_lock);
	is_charged = charge_asking(quota, card, bytes);
	end_conversation(quota);
	return is_charged;
}

void quota_settle_charge(struct quota *quota, uint32_t card, uint64_t more_bytes)
{
	struct balance *balance;
	bool is_above = false;

	lock_acquire(&quota->balances_lock);
	balance = find(quota, card);
	if (balance) {
		balance->used += more_bytes;
		is_above = balance->used > balance->held;
		if (is_above)
			balance->held = balance->used;
	}
	lock_release(&quota->balances_lock);
	if (!is_above)
		return;
	lock_acquire(&quota->talk_lock);
	quota->is_greeted = false;
	greet(quota, short_patience().until_ms);
	end_conversation(quota);
}

void quota_uncharge(struct quota *quota, uint32_t card, uint64_t bytes)
{
	struct balance *balance;

	lock_acquire(&quota->balances_lock);
	balance = find(quota, card);
	if (balance)
		balance->used -= bytes < balance->used ? bytes : balance->used;
	lock_release(&quota->balances_lock);
	report_all_credit(quota);
}

/* What the card's figures were when they were last heard, with what this process uses now. */
static bool recall_usage(struct quota *quota, uint32_t card, uint64_t *limit, uint64_t *used)
{
	struct balance *balance;
	bool is_known;

	lock_acquire(&quota->balances_lock);
	balance = find(quota, card);
	is_known = balance && balance->is_known;
	if (is_known) {
		*limit = balance->limit;
		*used = balance->others + balance->used;
	}
	lock_release(&quota->balances_lock);
	return is_known;
}

static int ask_usage(struct quota *quota, uint32_t card, bool is_known)
{
	struct patience patience = is_known ? short_patience() : long_patience(quota);
	struct protocol_holding holding = { .minor = card };
	struct protocol_answer answer = { 0 };
	struct balance *balance;
	int verdict;

	lock_acquire(&quota->balances_lock);
	balance = find(quota, card);
	if (balance)
		holding.held_bytes = balance->held;
	lock_release(&quota->balances_lock);
	verdict = ask(quota, PROTOCOL_LOOK, holding, &answer, patience);
	if (verdict == PROTOCOL_YES)
		remember(quota, holding, &answer);
	return verdict;
}

bool quota_usage(struct quota *quota, uint32_t card, uint64_t *limit, uint64_t *used)
{
	bool is_known = recall_usage(quota, card, limit, used);
	int verdict;

	if (!is_known || !atomic_load(&quota->is_silent))
		lock_acquire(&quota->talk_lock);
	else if (!lock_try(&quota->talk_lock))
		return true;
	verdict = ask_usage(quota, card, is_known);
	end_conversation(quota);
	if (verdict != PROTOCOL_YES && verdict != NO_ANSWER)
		return false;
	return recall_usage(quota, card, limit, used);
}

uint32_t quota_cards(struct quota *quota)
{
	uint32_t count;

	lock_acquire(&quota->balances_lock);
	count = quota->count;
	lock_release(&quota->balances_lock);
	return count ? count : 1;
}
