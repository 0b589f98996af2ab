/* What a rank of PETSc does: it solves the system in a file by a Krylov method, as often as it is told, and
 * rank 0 prints a line for each run.
 *
 * How many iterations it takes until no row's residual is above the tolerance is found out before, by a test
 * that looks at the residual itself. It is not measured: the runs that are do that many, with PETSc's own
 * test, which needs no message of its own with the natural norm.
 */
#include <petscksp.h>

static PetscErrorCode small_enough(KSP ksp, PetscInt n, PetscReal norm, KSPConvergedReason *reason, void *tolerance)
{
	Vec r;
	PetscReal worst;

	PetscFunctionBeginUser;
	PetscCall(KSPBuildResidual(ksp, NULL, NULL, &r));
	PetscCall(VecNorm(r, NORM_INFINITY, &worst));
	PetscCall(VecDestroy(&r));
	*reason = worst <= *(PetscReal *)tolerance ? KSP_CONVERGED_ATOL : KSP_CONVERGED_ITERATING;
	PetscFunctionReturn(0);
}

static PetscErrorCode residual(Mat a, Vec x, Vec b, PetscReal *worst)
{
	Vec r;

	PetscFunctionBeginUser;
	PetscCall(VecDuplicate(b, &r));
	PetscCall(MatMult(a, x, r));
	PetscCall(VecAYPX(r, -1, b));
	PetscCall(VecNorm(r, NORM_INFINITY, worst));
	PetscCall(VecDestroy(&r));
	PetscFunctionReturn(0);
}

int main(int argc, char **argv)
{
	char file[PETSC_MAX_PATH_LEN], method[64] = "";
	PetscReal tolerance = 1e-6, worst;
	PetscInt repeat = 1, n;
	PetscViewer from;
	Mat a;
	Vec b, x;
	KSP ksp;
	KSPConvergedReason reason;
	double began, took;

	PetscCall(PetscInitialize(&argc, &argv, NULL, NULL));
	PetscCall(PetscOptionsGetString(NULL, NULL, "-system", file, sizeof file, NULL));
	PetscCall(PetscOptionsGetString(NULL, NULL, "-ksp_type", method, sizeof method, NULL));
	PetscCall(PetscOptionsGetReal(NULL, NULL, "-tolerance", &tolerance, NULL));
	PetscCall(PetscOptionsGetInt(NULL, NULL, "-repeat", &repeat, NULL));

	PetscCall(PetscViewerBinaryOpen(PETSC_COMM_WORLD, file, FILE_MODE_READ, &from));
	PetscCall(MatCreate(PETSC_COMM_WORLD, &a));
	PetscCall(MatLoad(a, from));
	PetscCall(MatCreateVecs(a, &x, &b));
	PetscCall(VecLoad(b, from));
	PetscCall(PetscViewerDestroy(&from));

	PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp));
	PetscCall(KSPSetOperators(ksp, a, a));
	PetscCall(KSPSetNormType(ksp, KSP_NORM_NATURAL));
	PetscCall(KSPSetFromOptions(ksp));
	PetscCall(KSPSetConvergenceTest(ksp, small_enough, &tolerance, NULL));
	PetscCall(KSPSolve(ksp, b, x)); /* the warm-up, too */
	PetscCall(KSPGetConvergedReason(ksp, &reason));
	PetscCheck(reason > 0, PETSC_COMM_WORLD, PETSC_ERR_NOT_CONVERGED, "%s has not converged: reason %d", method, (int)reason);
	PetscCall(KSPGetIterationNumber(ksp, &n));

	PetscCall(KSPSetConvergenceTest(ksp, KSPConvergedSkip, NULL, NULL));
	PetscCall(KSPSetTolerances(ksp, PETSC_DEFAULT, PETSC_DEFAULT, PETSC_DEFAULT, n));
	while (repeat-- > 0) {
		PetscCall(VecSet(x, 0));
		PetscCallMPI(MPI_Barrier(PETSC_COMM_WORLD));
		began = MPI_Wtime();
		PetscCall(KSPSolve(ksp, b, x));
		took = MPI_Wtime() - began;
		PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, PETSC_COMM_WORLD));
		PetscCall(residual(a, x, b, &worst));
		PetscCall(PetscPrintf(PETSC_COMM_WORLD, "{\"method\":\"%s\",\"seconds\":%.6f,\"iterations\":%d,\"residual\":%g}\n",
			method, took, (int)n, (double)worst));
	}
	PetscCall(KSPDestroy(&ksp));
	PetscCall(VecDestroy(&x));
	PetscCall(VecDestroy(&b));
	PetscCall(MatDestroy(&a));
	PetscCall(PetscFinalize());
	return 0;
}
