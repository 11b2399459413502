"""The compiled parsers of svmlight lines, ``label index:value index:value … # comment``, and of lines of numbers."""

import numpy as np

from rmopt.kernels import njit

# Why it stopped: at the end; a label, an index or a value is no number; an index is too small, too large.
DONE, BAD_LABEL, BAD_INDEX, BAD_VALUE, BELOW, ABOVE = range(6)

SPACE, TAB, NEWLINE, RETURN, HASH, COMMA, COLON = 32, 9, 10, 13, 35, 44, 58
PLUS, MINUS, POINT, ZERO, NINE = 43, 45, 46, 48, 57
QID = (113, 105, 100)
# Up to these a quotient or product of two numbers that are exact is rounded once, as the nearest number is.
LARGEST_EXACT, MOST_PLACES, MOST_DIGITS = 2**53, 22, 18
# How far off a correction to a quotient may be, and is not by far.
DOUBT = 2.0**-30
POWERS = 10.0 ** np.arange(MOST_PLACES + 1)


@njit(cache=True, nogil=True)
def parse(text, first, n_features, labels, label_starts, indices, values, starts, hard):
    """Read whole lines; return (rows, hard numbers, why it stopped, where).

    Parameters
    ----------
    text : uint8 array
        Ends with a newline.
    first : int
        The index of the first feature, 0 or 1.
    n_features : int
    labels, label_starts : float and int64 arrays
        All labels, and where those of each row begin; filled here, as are the others.
    indices, values, starts : int32, float and int64 arrays
        The parts of a CSR array.
    hard : int64 array, shape (most, 3)
        Numbers that this parser does not round rightly: where they begin and end, and their place: among the values,
        or −1 − place among the labels.
    """
    row, n_values, n_labels, n_hard, at, end = 0, 0, 0, 0, 0, text.shape[0]
    starts[0] = label_starts[0] = 0
    while at < end:
        at = _blank(text, at)
        if text[at] == NEWLINE or text[at] == HASH:
            at = _next_line(text, at)
            continue
        # Labels, with commas between; a row without any begins with a feature.
        begun = at
        while text[at] > SPACE and text[at] != COLON and text[at] != HASH:
            at += 1
        if text[at] == COLON:
            at = begun
        else:
            stop, at = at, begun
            while at < stop:
                begun = at
                while at < stop and text[at] != COMMA:
                    at += 1
                value, state = _number(text, begun, at)
                if state < 0:
                    return row, n_hard, BAD_LABEL, begun
                if state > 0:
                    hard[n_hard, 0], hard[n_hard, 1], hard[n_hard, 2] = begun, at, -1 - n_labels
                    n_hard += 1
                labels[n_labels] = value
                n_labels += 1
                at += 1
            at = stop
        while True:
            at = _blank(text, at)
            if text[at] == NEWLINE or text[at] == HASH:
                break
            if text[at] == QID[0] and text[at + 1] == QID[1] and text[at + 2] == QID[2]:
                while text[at] > SPACE:
                    at += 1
                continue
            begun, index = at, 0
            while ZERO <= text[at] <= NINE and index < 2**40:
                index = 10 * index + (text[at] - ZERO)
                at += 1
            if at == begun or text[at] != COLON:
                return row, n_hard, BAD_INDEX, begun
            index -= first
            if index < 0:
                return row, n_hard, BELOW, begun
            if index >= n_features:
                return row, n_hard, ABOVE, begun
            at += 1
            begun = at
            while text[at] > SPACE and text[at] != HASH:
                at += 1
            value, state = _number(text, begun, at)
            if state < 0:
                return row, n_hard, BAD_VALUE, begun
            if state > 0:
                hard[n_hard, 0], hard[n_hard, 1], hard[n_hard, 2] = begun, at, n_values
                n_hard += 1
            indices[n_values], values[n_values] = index, value
            n_values += 1
        at = _next_line(text, at)
        row += 1
        starts[row], label_starts[row] = n_values, n_labels
    return row, n_hard, DONE, at


@njit(cache=True, nogil=True)
def table(text, numbers):
    """Read lines of as many numbers as there are columns; return whether all were rightly read, and no more there.

    Parameters
    ----------
    text : uint8 array
        Ends with a newline.
    numbers : float array, shape (n_lines, n_columns)
        Filled here; empty lines are passed over.
    """
    row, column, at, end = 0, 0, 0, text.shape[0]
    while at < end:
        at = _blank(text, at)
        if text[at] == NEWLINE:
            if 0 < column < numbers.shape[1]:
                return False
            row, column, at = row + (column > 0), 0, at + 1
            continue
        if row == numbers.shape[0] or column == numbers.shape[1]:
            return False
        begun = at
        while text[at] > SPACE:
            at += 1
        if at == begun:
            return False
        numbers[row, column], state = _number(text, begun, at)
        if state != 0:
            return False
        column += 1
    return row == numbers.shape[0]


@njit(cache=True, nogil=True, inline="always")
def _blank(text, at):
    while text[at] == SPACE or text[at] == TAB or text[at] == RETURN:
        at += 1
    return at


@njit(cache=True, nogil=True, inline="always")
def _next_line(text, at):
    while text[at] != NEWLINE:
        at += 1
    return at + 1


@njit(cache=True, nogil=True)
def _number(text, at, stop):
    """Return the number in a stretch of text, and 0; a number and 1 where Python must say it; or −1 where none is."""
    if at == stop:
        return 0.0, -1
    negative = text[at] == MINUS
    if negative or text[at] == PLUS:
        at += 1
    mantissa, digits, places, seen = 0, 0, 0, False
    while at < stop and ZERO <= text[at] <= NINE:
        if digits < MOST_DIGITS:
            mantissa = 10 * mantissa + (text[at] - ZERO)
        digits += mantissa > 0
        at, seen = at + 1, True
    if at < stop and text[at] == POINT:
        at += 1
        while at < stop and ZERO <= text[at] <= NINE:
            if digits < MOST_DIGITS:
                mantissa = 10 * mantissa + (text[at] - ZERO)
            digits += mantissa > 0
            at, seen, places = at + 1, True, places - 1
    if at < stop and seen and (text[at] == 101 or text[at] == 69):
        at += 1
        power, sign, known = 0, 1, False
        if at < stop and (text[at] == MINUS or text[at] == PLUS):
            sign = -1 if text[at] == MINUS else 1
            at += 1
        while at < stop and ZERO <= text[at] <= NINE:
            power, at, known = min(10 * power + (text[at] - ZERO), 10**6), at + 1, True
        if not known:
            return 0.0, -1
        places += sign * power
    if at < stop or not seen:
        # Words such as nan, and what is no number at all.
        return 0.0, 1
    if digits > MOST_DIGITS or places > MOST_PLACES or places < -MOST_PLACES:
        return 0.0, 1 - (mantissa == 0 and digits == 0)
    if mantissa <= LARGEST_EXACT:
        value = float(mantissa)
        value = value * POWERS[places] if places >= 0 else value / POWERS[-places]
    elif places < 0:
        value, state = _quotient(mantissa, POWERS[-places])
        if state > 0:
            return 0.0, state
    else:
        return 0.0, 1
    return -value if negative else value, 0


@njit(cache=True, nogil=True)
def _quotient(mantissa, power):
    """Return an integer divided by a power, rounded once, and 0; or 1 where it is too near to the middle to tell."""
    high = float(mantissa)
    low = float(mantissa - np.int64(high))
    first = high / power
    # The product of the quotient and the power in two numbers, without an error (Dekker 1971).
    a, b = _halves(first)
    c, d = _halves(power)
    product = first * power
    rest = ((a * c - product) + a * d + b * c) + b * d
    correction = (((high - product) - rest) + low) / power
    value = first + correction * (1.0 + DOUBT)
    return value, int(value != first + correction * (1.0 - DOUBT))


@njit(cache=True, nogil=True, inline="always")
def _halves(x):
    """Return two numbers of 26 bits whose sum is x."""
    large = 134217729.0 * x
    high = large - (large - x)
    return high, x - high
