#include "books.h"

#include "memory.h"
#include "say.h"
#include "syscalls.h"

#define PATIENCE_MS 120000 /* an agent that is being upgraded is back by then */
#define AGAIN_MS 50 /* guessed: soon enough for an agent that is back, cheap while it is not */
#define ANSWER_MS 2000 /* guessed: an answer takes microseconds; asking again is harmless */
#define BRIEF_MS 100 /* guessed: where a wait was for nothing already */

/* The verdicts of the protocol, and that there was none. */
#define NO_ANSWER (-1)

static struct balance *find(struct books *books, uint32_t card)
{
	for (uint32_t i = 0; i < books->count; i++)
		if (books->balances[i].card == card)
			return &books->balances[i];
	if (books->count == PROTOCOL_CARDS)
		return NULL;
	books->balances[books->count].card = card;
	return &books->balances[books->count++];
}

/* Under `talk` and `figures`: no more than this is the process's from now on, because the agent hears so. */
static struct protocol_holding lower(struct balance *balance, uint64_t *before)
{
	*before = balance->held;
	balance->held = balance->used;
	return (struct protocol_holding){ .minor = balance->card, .held_bytes = balance->used };
}

/* Under `figures`: it has not heard so. */
static void restore(struct balance *balance, uint64_t before)
{
	if (balance->held < before)
		balance->held = before;
}

static bool say_hello(struct books *books)
{
	struct connection_question question = { 0 };
	uint64_t before[PROTOCOL_CARDS] = { 0 };
	bool is_said;

	lock_take(&books->figures);
	for (uint32_t i = 0; i < books->count; i++)
		question.holdings[question.head.count++] = lower(&books->balances[i], &before[i]);
	lock_leave(&books->figures);
	is_said = connection_say(&books->connection, PROTOCOL_HELLO, &question);
	lock_take(&books->figures);
	for (uint32_t i = 0; i < question.head.count && !is_said; i++)
		restore(&books->balances[i], before[i]);
	lock_leave(&books->figures);
	return is_said;
}

static bool is_understood(struct books *books, const struct protocol_answer *answer)
{
	if (answer->version == PROTOCOL_VERSION && answer->verdict != PROTOCOL_NOT_UNDERSTOOD)
		return true;
	say_once(SAY_OTHER_PROTOCOL, "the agent of this node speaks another version; waiting for one that does not");
	connection_close(&books->connection);
	return false;
}

/* A connection whose agent knows what this process holds. */
static bool greet(struct books *books, int64_t until_ms)
{
	struct protocol_answer answer = { 0 };
	int64_t soon = sys_now_ms() + ANSWER_MS;

	if (!connection_is_open(&books->connection)) {
		books->is_greeted = false;
		if (!connection_open(&books->connection))
			return false;
	}
	if (books->is_greeted)
		return true;
	if (!say_hello(books) || !connection_hear(&books->connection, &answer, soon < until_ms ? soon : until_ms) ||
	    !is_understood(books, &answer))
		return false;
	if (answer.verdict == PROTOCOL_UNLIMITED)
		atomic_store(&books->is_unlimited, true);
	memcpy(books->driver_version, answer.driver_version, sizeof(answer.driver_version));
	books->driver_version[sizeof(books->driver_version) - 1] = '\0';
	books->is_greeted = true;
	return true;
}

/* One question and its answer. False: none came in time; then nobody knows whether the agent has counted it. */
static bool ask_once(struct books *books, enum protocol_kind kind, struct protocol_holding holding,
		     struct protocol_answer *answer, int64_t until_ms)
{
	struct connection_question question = { .head.count = 1, .holdings = { holding } };
	int64_t soon = sys_now_ms() + ANSWER_MS;

	return connection_say(&books->connection, kind, &question) &&
	       connection_hear(&books->connection, answer, soon < until_ms ? soon : until_ms) &&
	       is_understood(books, answer);
}

/* How long to wait for an agent that does not answer: not at all where that was for nothing already. */
struct patience {
	int64_t until_ms;
	bool is_short; /* an agent that cannot be reached is not waited for */
};

static struct patience short_patience(void)
{
	return (struct patience){ sys_now_ms() + ANSWER_MS, true };
}

static struct patience long_patience(struct books *books)
{
	if (atomic_load(&books->is_away))
		return short_patience();
	return (struct patience){ sys_now_ms() + PATIENCE_MS, false };
}

static bool is_over(struct books *books, struct patience patience)
{
	return sys_now_ms() >= patience.until_ms || (patience.is_short && !connection_is_open(&books->connection));
}

/* Under `talk`. Asks again and again; what is asked is absolute, so that asking twice counts once. */
static int ask(struct books *books, enum protocol_kind kind, struct protocol_holding holding,
	       struct protocol_answer *answer, struct patience patience)
{
	while (!greet(books, patience.until_ms) ||
	       !(atomic_load(&books->is_unlimited) || ask_once(books, kind, holding, answer, patience.until_ms))) {
		atomic_store(&books->is_silent, true);
		if (is_over(books, patience)) {
			books->is_greeted = false;
			atomic_store(&books->is_away, true);
			return NO_ANSWER;
		}
		if (!connection_is_open(&books->connection))
			sys_pause_ms(AGAIN_MS);
	}
	atomic_store(&books->is_away, false);
	atomic_store(&books->is_silent, false);
	if (!atomic_load(&books->is_unlimited) && answer->verdict == PROTOCOL_UNLIMITED)
		atomic_store(&books->is_unlimited, true);
	return atomic_load(&books->is_unlimited) ? PROTOCOL_UNLIMITED : answer->verdict;
}

static struct balance *find_credit(struct books *books)
{
	for (uint32_t i = 0; i < books->count; i++)
		if (books->balances[i].held > books->balances[i].used)
			return &books->balances[i];
	return NULL;
}

static bool say_hello_anew(struct books *books)
{
	books->is_greeted = false;
	if (connection_is_open(&books->connection) || connection_open(&books->connection))
		books->is_greeted = say_hello(books);
	return books->is_greeted;
}

/* Under `talk`: the agent hears of one card's credit. False: that could not be said without waiting. */
static bool tell_credit(struct books *books)
{
	struct connection_question question = { .head.count = 1 };
	struct balance *balance;
	uint64_t before = 0;

	if (!connection_is_open(&books->connection) || !books->is_greeted)
		return say_hello_anew(books);
	lock_take(&books->figures);
	balance = find_credit(books);
	if (balance)
		question.holdings[0] = lower(balance, &before);
	lock_leave(&books->figures);
	if (!balance || connection_say(&books->connection, PROTOCOL_GIVE, &question))
		return true;
	lock_take(&books->figures);
	restore(balance, before);
	lock_leave(&books->figures);
	return say_hello_anew(books);
}

static bool has_credit(struct books *books)
{
	bool found;

	lock_take(&books->figures);
	found = find_credit(books);
	lock_leave(&books->figures);
	return found;
}

/* Whoever finds `talk` taken leaves it to him who has it: he looks again after he left it. */
static void tell(struct books *books)
{
	bool is_told = true;

	while (is_told && has_credit(books) && lock_try(&books->talk)) {
		is_told = tell_credit(books);
		lock_leave(&books->talk);
	}
}

static void stop_talking(struct books *books)
{
	lock_leave(&books->talk);
	tell(books);
}

enum books_meeting books_meet(struct books *books)
{
	struct patience patience;
	enum books_meeting meeting;

	lock_take(&books->talk);
	patience = long_patience(books);
	while (!greet(books, patience.until_ms) && !is_over(books, patience))
		if (!connection_is_open(&books->connection))
			sys_pause_ms(AGAIN_MS);
	if (atomic_load(&books->is_unlimited))
		meeting = BOOKS_UNLIMITED;
	else
		meeting = books->is_greeted ? BOOKS_LIMITED : BOOKS_ABSENT;
	atomic_store(&books->is_away, meeting == BOOKS_ABSENT);
	stop_talking(books);
	return meeting;
}

enum fit { FITS, TOO_MUCH, NO_CARD };

/* Charges what is granted already; else says what has to be asked for. */
static enum fit charge_granted(struct books *books, uint32_t card, uint64_t bytes, struct protocol_holding *wanted)
{
	struct balance *balance;
	enum fit fit = NO_CARD;

	lock_take(&books->figures);
	balance = find(books, card);
	if (balance && bytes <= UINT64_MAX - balance->used) {
		wanted->minor = card;
		wanted->held_bytes = balance->used + bytes;
		fit = wanted->held_bytes <= balance->held ? FITS : TOO_MUCH;
		if (fit == FITS)
			balance->used += bytes;
	}
	lock_leave(&books->figures);
	return fit;
}

/* What the agent said of a card, of which it has been told `held`. */
static void remember(struct books *books, struct protocol_holding told, const struct protocol_answer *answer)
{
	struct balance *balance;
	uint64_t held = told.held_bytes;

	lock_take(&books->figures);
	balance = find(books, told.minor);
	if (balance) {
		if (answer->verdict == PROTOCOL_YES && held > balance->held)
			balance->held = held;
		if (answer->verdict == PROTOCOL_NO)
			held = balance->held;
		balance->limit = answer->limit_bytes;
		balance->others = answer->used_bytes > held ? answer->used_bytes - held : 0;
		balance->is_known = true;
	}
	lock_leave(&books->figures);
}

static bool charge_asking(struct books *books, uint32_t card, uint64_t bytes)
{
	struct patience patience = long_patience(books);
	struct protocol_holding wanted = { 0 }, refused = { .held_bytes = UINT64_MAX };
	struct protocol_answer answer = { 0 };
	enum fit fit;

	while ((fit = charge_granted(books, card, bytes, &wanted)) == TOO_MUCH) {
		/* Less than what was refused: another thread gave some back meanwhile. */
		if (wanted.held_bytes >= refused.held_bytes)
			break;
		switch (ask(books, PROTOCOL_HOLD, wanted, &answer, patience)) {
		case PROTOCOL_UNLIMITED:
			return true;
		case PROTOCOL_YES:
			remember(books, wanted, &answer);
			break;
		case PROTOCOL_NO:
			remember(books, wanted, &answer);
			refused = wanted;
			break;
		default:
			return false;
		}
	}
	return fit == FITS;
}

bool books_try_charge(struct books *books, uint32_t card, uint64_t bytes)
{
	struct protocol_holding wanted;
	enum fit fit = charge_granted(books, card, bytes, &wanted);
	bool is_charged;

	if (fit != TOO_MUCH)
		return fit == FITS;
	lock_take(&books->talk);
	is_charged = charge_asking(books, card, bytes);
	stop_talking(books);
	return is_charged;
}

void books_force_charge(struct books *books, uint32_t card, uint64_t more_bytes)
{
	struct balance *balance;
	bool is_above = false;

	lock_take(&books->figures);
	balance = find(books, card);
	if (balance) {
		balance->used += more_bytes;
		is_above = balance->used > balance->held;
		if (is_above)
			balance->held = balance->used;
	}
	lock_leave(&books->figures);
	if (!is_above)
		return;
	lock_take(&books->talk);
	books->is_greeted = false;
	greet(books, short_patience().until_ms);
	stop_talking(books);
}

void books_uncharge(struct books *books, uint32_t card, uint64_t bytes)
{
	struct balance *balance;

	lock_take(&books->figures);
	balance = find(books, card);
	if (balance)
		balance->used -= bytes < balance->used ? bytes : balance->used;
	lock_leave(&books->figures);
	tell(books);
}

/* What the card's figures were when they were last heard, with what this process uses now. */
static bool recall_usage(struct books *books, uint32_t card, uint64_t *limit, uint64_t *used)
{
	struct balance *balance;
	bool is_known;

	lock_take(&books->figures);
	balance = find(books, card);
	is_known = balance && balance->is_known;
	if (is_known) {
		*limit = balance->limit;
		*used = balance->others + balance->used;
	}
	lock_leave(&books->figures);
	return is_known;
}

static int ask_usage(struct books *books, uint32_t card, bool is_known)
{
	struct patience patience = is_known ? short_patience() : long_patience(books);
	struct protocol_holding holding = { .minor = card };
	struct protocol_answer answer = { 0 };
	struct balance *balance;
	int verdict;

	lock_take(&books->figures);
	balance = find(books, card);
	if (balance)
		holding.held_bytes = balance->held;
	lock_leave(&books->figures);
	verdict = ask(books, PROTOCOL_LOOK, holding, &answer, patience);
	if (verdict == PROTOCOL_YES)
		remember(books, holding, &answer);
	return verdict;
}

bool books_usage(struct books *books, uint32_t card, uint64_t *limit, uint64_t *used)
{
	bool is_known = recall_usage(books, card, limit, used);
	int verdict;

	if (!is_known || !atomic_load(&books->is_silent))
		lock_take(&books->talk);
	else if (!lock_try(&books->talk))
		return true;
	verdict = ask_usage(books, card, is_known);
	stop_talking(books);
	if (verdict != PROTOCOL_YES && verdict != NO_ANSWER)
		return false;
	return recall_usage(books, card, limit, used);
}
