/* A function of project_file.c. Words in capitals are replaced by numbers, other ones in each function. */
static unsigned part_NUMBER(unsigned a, unsigned b) {
    unsigned table[16], i, sum = a * FACTORu + b;
    for (i = 0; i < 16; i++) table[i] = (sum >> (i % 7)) ^ (i * SHIFTu + a);
    for (i = 1; i < 16; i++)
        if (table[i] % DIVISORu < table[i - 1] % 11u) sum += table[i] * b; else sum ^= table[i - 1];
    return sum;
}
