/* A function of pool_file.c. Words in capitals are replaced by numbers, other ones in each function. */
unsigned part_NUMBER(unsigned a, unsigned *table) {
    unsigned i, sum = a * FACTORu;
    for (i = 1; i < 64; i++) {
        table[i] ^= sum >> (i % 7);
        if (table[i] % DIVISORu < table[i - 1] % 11u) sum += table[i] * a; else sum ^= table[i - 1];
    }
    return sum;
}
